"""Records and changes activations at taps. The forward pass stays on the fused attention kernel; scores and weights
are computed beside it, for the selected layers, heads and queries only."""

from headway.inspect.attribution import Attribution, Contribution, attribute
from headway.inspect.importance import HeadImportance, head_importance, logit
from headway.inspect.integrated import TokenAttribution, integrated_gradients
from headway.inspect.intervene import ablate, patch, replace, scale, steer
from headway.inspect.lens import LensLayer, logit_lens
from headway.inspect.pictures import draw_alignment, draw_attention, draw_heads, draw_positions
from headway.inspect.record import record, record_contexts
from headway.inspect.rollout import Rollout, attention_rollout

__all__ = [
    "Attribution",
    "Contribution",
    "HeadImportance",
    "LensLayer",
    "Rollout",
    "TokenAttribution",
    "ablate",
    "attention_rollout",
    "attribute",
    "draw_alignment",
    "draw_attention",
    "draw_heads",
    "draw_positions",
    "head_importance",
    "integrated_gradients",
    "logit",
    "logit_lens",
    "patch",
    "record",
    "record_contexts",
    "replace",
    "scale",
    "steer",
]
