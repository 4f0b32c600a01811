"""Listens at taps. The forward pass stays on the fast kernel; only what is asked for is worked out."""

from headway.inspect.attribution import Attribution, Contribution, attribute
from headway.inspect.importance import HeadImportance, head_importance, logit
from headway.inspect.intervene import ablate, patch, replace, scale, steer
from headway.inspect.lens import LensLayer, logit_lens
from headway.inspect.pictures import draw_alignment, draw_attention, draw_heads, draw_positions
from headway.inspect.record import record
from headway.inspect.rollout import Rollout, attention_rollout

__all__ = [
    "Attribution",
    "Contribution",
    "HeadImportance",
    "LensLayer",
    "Rollout",
    "ablate",
    "attention_rollout",
    "attribute",
    "draw_alignment",
    "draw_attention",
    "draw_heads",
    "draw_positions",
    "head_importance",
    "logit",
    "logit_lens",
    "patch",
    "record",
    "replace",
    "scale",
    "steer",
]
