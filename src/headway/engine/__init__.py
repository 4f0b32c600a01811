"""Room: engine. The same model, faster."""

from headway.engine.prepare import prepare, release, why_not
from headway.engine.ragged import encode_ragged

__all__ = ["encode_ragged", "prepare", "release", "why_not"]
