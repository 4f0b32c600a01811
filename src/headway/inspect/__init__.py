"""Room: inspect. Listens at taps. The forward pass stays on the fast kernel; only what is asked for is worked out."""

from headway.inspect.pictures import draw_alignment
from headway.inspect.record import record

__all__ = ["draw_alignment", "record"]
