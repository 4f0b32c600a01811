"""Cheap classic models, fitted in seconds, whose scores stand beside those of a trained model. They know no task; each
task says which one it is compared with (`Task.classic_baseline`)."""

from headway.baselines.baseline import Baseline, baseline_lines, thinned

__all__ = ["Baseline", "baseline_lines", "thinned"]
