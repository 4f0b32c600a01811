"""A model, a source and a loss that train in milliseconds."""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from headway.data.batch import Batch, Loss
from headway.training.loop import FitResult, fit
from headway.training.settings import Settings

VOCABULARY = 17


class ToyBlock(nn.Module):
    is_block = True

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.down(F.gelu(self.up(self.norm(x)))))


class ToyModel(nn.Module):
    """Next-token prediction from the present token alone; the output layer is tied to the embedding."""

    def __init__(self, *, width: int = 8, dropout: float = 0.2, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(ToyBlock(width, dropout) for _ in range(2))
        self.out = nn.Linear(width, VOCABULARY, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)  # (batch, position, width)
        for block in self.blocks:
            x = block(x)
        return self.out(x)  # (batch, position, vocabulary)


class ToySource:
    """Ragged sequences in a shuffled order; 22 examples in batches of 4 leave a short last batch."""

    def __init__(self, *, examples: int = 22, batch: int = 4, fingerprint: str = "toy.tsv 1234") -> None:
        random = np.random.default_rng(5)
        self.examples = [random.integers(0, VOCABULARY, size=random.integers(3, 8)) for _ in range(examples)]
        self.batch = batch
        self.fingerprint = fingerprint
        self.seen: list[tuple[int, int]] = []

    def epoch(self, number: int) -> list[np.ndarray]:
        order = np.random.default_rng((7, number)).permutation(len(self.examples))
        return [order[start : start + self.batch] for start in range(0, len(order), self.batch)]

    def load(self, indices: np.ndarray, epoch: int) -> Batch:
        self.seen += [(epoch, int(index)) for index in indices]
        chosen = [torch.from_numpy(self.examples[index]) for index in indices]
        ids = nn.utils.rnn.pad_sequence([example[:-1] for example in chosen], batch_first=True)
        targets = nn.utils.rnn.pad_sequence([example[1:] for example in chosen], batch_first=True, padding_value=-100)
        count = int((targets != -100).sum())
        where = [f"toy.tsv:{index + 1}" for index in indices]
        return Batch(inputs={"ids": ids}, targets={"ids": targets}, count=count, where=where)


def toy_loss(model: nn.Module, batch: Batch) -> Loss:
    logits = model(**batch.inputs)
    total = F.cross_entropy(logits.flatten(0, 1), batch.targets["ids"].flatten(), ignore_index=-100, reduction="sum")
    return Loss(total=total, parts={"cross_entropy": total})


def toy_evaluate(model: nn.Module) -> dict[str, float]:
    torch.rand(3)  # an evaluation that draws must not change the training
    batch = ToySource().load(np.arange(8), 0)
    return {"loss": float(toy_loss(model, batch).total) / batch.count}


def toy_settings(**changes: object) -> Settings:
    given = {"lr": 0.01, "batch": 4, "log_every": 1, "save_every": 0, "eval_every": 0, "device": "cpu", **changes}
    if not {"steps", "epochs", "minutes"} & set(given):
        given["steps"] = 14
    return Settings(**given)


def toy_fit(folder: Path, *, model: nn.Module | None = None, source: ToySource | None = None, **options) -> FitResult:
    names = ("loss", "evaluate", "score", "higher_is_better", "callbacks", "resume")
    arguments = {name: options.pop(name) for name in names if name in options}
    arguments.setdefault("loss", toy_loss)
    return fit(model or ToyModel(), source or ToySource(), settings=toy_settings(**options), folder=folder, **arguments)


def close(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor], tolerance: float) -> bool:
    return all(torch.allclose(left[name], right[name], atol=tolerance, rtol=0) for name in left)
