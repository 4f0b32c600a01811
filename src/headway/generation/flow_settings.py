"""How pictures are drawn: the settings of a flow, each declared once with its help and its check."""

from __future__ import annotations

from dataclasses import dataclass, fields

from headway.generation.option import FLAG, option, option_of, optional, real, whole

STEPS, GUIDANCE = 25, 2.0


@dataclass(frozen=True)
class FlowSettings:
    steps: int = option(STEPS, "Euler steps from noise to image.", whole(1, 10_000), commands=("run",))
    guidance: float = option(
        GUIDANCE,
        "Strength of the caption: 1 is the model's own distribution, higher values follow it more closely.",
        real("0 or above", lambda value: value >= 0),
        commands=("run",),
    )
    seed: int | None = option(None, "Random seed: the next picture uses seed + 1.", optional(whole(0, 2**63 - 1)))
    strip: bool = option(False, "Show the steps from noise to picture side by side.", FLAG, commands=("run",))

    def __post_init__(self) -> None:
        for each in fields(self):
            option_of(each).check(each.name, getattr(self, each.name))
