"""Room: engine. The same model, faster."""

from headway.engine.ragged import encode_ragged

__all__ = ["encode_ragged"]
