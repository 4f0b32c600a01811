"""What the test of shared evaluation runs beside itself: every task's scores, by one process and by two ranks."""

from dataclasses import dataclass, field

import torch
from support.ranks import fork_ranks
from support.task_run import started
from torch import nn

from headway.data.read import Row
from headway.distributed import World, init_distributed
from headway.errors import DataError, HeadwayError
from headway.tasks.distributed import distributed_map, use_ranks
from headway.tasks.task import Task

ROWS = 150  # three batches of the tasks that take 64 at once; a row of those that read running text is a long one
DOCUMENTS = {"generate": 3, "chat": 20, "fill": 6, "transcribe": 40}
OPTIONS = {  # of every task but summarize, which is a Translate whose scores take seconds to import
    "generate": {"context": 16, "vocab": 300},
    "chat": {"context": 48, "vocab": 300},
    "translate": {"target_limit": 8},
    **{name: {"vocab": 200} for name in ("classify", "tag", "answer", "embed")},
    "fill": {"vocab": 200, "next_sentence": True},
    "classify-image": {},
    "detect": {},
    "transcribe": {"target_limit": 4},
    "draw": {},
}


@dataclass(frozen=True)
class Counted(World):
    """A world that counts the batches this rank worked out."""

    done: list[int] = field(default_factory=list)

    def all_gather(self, value):
        self.done.append(len(value[0]))
        return super().all_gather(value)


def subject(name: str) -> tuple[Task, nn.Module, list[Row]]:
    task, model, data = started(name, rows=DOCUMENTS.get(name, ROWS), **OPTIONS[name])
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)  # opinions
    return task, model, list(data.train())


def rank(rank: int) -> None:
    plain = init_distributed(torch.device("cpu"))
    for name, (task, model, rows) in SUBJECTS.items():
        world = Counted(plain.rank, plain.size, plain.group)
        with use_ranks(world):
            found = task.evaluate(model, rows)
        assert found == ALONE[name], (name, found, ALONE[name])
        shares = plain.all_gather(world.done)
        assert all(abs(one - other) <= 1 and one >= other > 0 for one, other in zip(*shares, strict=True)), shares
        assert task.evaluate(model, rows[rank::2]) != found, f"{name}: half of the rows have the scores of all"
    with use_ranks(plain):
        fails_alike(plain)
        assert list(distributed_map(["a", "b", "c"], str.upper)) == [("a", "A"), ("b", "B"), ("c", "C")]
        assert list(distributed_map(["a"], str.upper)) == [("a", "A")] and list(distributed_map([], str.upper)) == []


def fails_alike(world: World) -> None:
    """What fails on one rank fails on every rank, for the same reason, and none waits for another."""

    def work(number: int) -> int:
        if number == 3:
            raise DataError("mine.tsv:4: is bad")
        return number

    try:
        list(distributed_map(range(5), work))
        raise AssertionError("an error was lost")
    except HeadwayError as error:
        assert str(error) == "mine.tsv:4: is bad" and (type(error) is DataError) == (world.rank == 1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    SUBJECTS = {name: subject(name) for name in OPTIONS}
    ALONE = {name: task.evaluate(model, rows) for name, (task, model, rows) in SUBJECTS.items()}
    fork_ranks(2, rank)
    print(*SUBJECTS)
