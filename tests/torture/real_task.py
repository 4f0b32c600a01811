"""A trial on a real task: the whole of `headway train`, killed and resumed."""

from __future__ import annotations

from pathlib import Path
from random import Random

from torture.trials import Trial

from headway.jobs import make_plan
from headway.jobs.verify import verify_resume

TASKS = ("classify", "generate", "tag", "embed")
KILLS = 20
SMALL = {"model.width": 32, "model.layers": 1, "model.heads": 2, "batch": 8, "log_every": 1, "eval_every": 20}


def real_task(random: Random, folder: Path, *, kills: int = KILLS, steps: int = 40) -> Trial:
    every = random.randint(1, 5)
    plan = make_plan(random.choice(TASKS), steps=steps, settings={**SMALL, "save_every": every})
    verified = verify_resume(plan, folder, kills=kills, seed=random.randrange(10**6))
    assert verified.same, verified.report()
    lost = max(verified.lost, default=0)
    assert lost <= every, f"{verified.lost} steps lost where states are {every} apart"
    return Trial(lost=lost, times=len(verified.lost), note=plan.task)
