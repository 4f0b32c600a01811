"""What convolutions over tokens (`layers/token_convolution.py`) add to the linear map of n-grams beside a classifier,
without a transformer: cross-validation on a training file.

    python -m benchmarks.token_convolution DATA-FOLDER [trec sst2 squad] [--folds 2] [--epochs 10]

The sets are those of `benchmarks.ngram_fit`. The convolutions are trained with the batches, rates and schedule of
`headway train classify`; the weights of both parts are fitted to the half of a fold that is not scored.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.classify import SETS
from benchmarks.ngram_fit import SQUAD, fits, ngram_inputs, texts_and_labels
from benchmarks.timing import use_threads
from headway.layers.token_convolution import TokenConvolution, TokenConvolutionConfig
from headway.preprocess.text import Tokenizer
from headway.tasks.ngram_features import fit_weights, weighted_sum
from headway.tasks.task import pad
from headway.tasks.text_settings import WORDS
from headway.training.optim import build_optimizers
from headway.training.recipes import RECIPES
from headway.training.schedule import Schedule

BATCH = 32


def trained(ids: list[list[int]], labels: Tensor, *, vocab: int, outputs: int, epochs: int) -> TokenConvolution:
    recipe = RECIPES["modern"]
    layer = TokenConvolution(outputs, TokenConvolutionConfig(vocab))
    layer.is_head = True  # type: ignore[assignment]  # as in a model: AdamW for all of it
    layer.reset(torch.Generator().manual_seed(0))
    optimizers = build_optimizers(layer, lr=recipe["lr"], weight_decay=recipe["weight_decay"])
    schedule = Schedule(recipe["schedule"], recipe["warmup"], recipe["decay"], 0.0)
    order, steps = np.random.default_rng(0), epochs * (len(ids) // BATCH)
    batches = [part for _ in range(epochs) for part in np.array_split(order.permutation(len(ids)), len(ids) // BATCH)]
    for step, rows in enumerate(batches):
        optimizers.scale_lr(schedule.factor(step, steps))
        optimizers.zero_grad()
        F.cross_entropy(layer(*padded([ids[row] for row in rows])), labels[rows]).backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), recipe["clip"])
        optimizers.step()
    return layer.eval()


def padded(ids: list[list[int]]) -> tuple[Tensor, Tensor]:
    rows = [np.array(text) for text in ids]
    return pad(rows, 0), pad([np.ones_like(row) for row in rows], 0).bool()


def fold(texts: tuple[list[str], list[str]], labels: tuple[Tensor, Tensor], *, outputs: int, epochs: int) -> Any:
    """Logits of each part on the held-out texts, and of both together."""
    inputs = ngram_inputs(*texts, outputs=outputs)["n-grams and characters"]
    wanted = F.one_hot(labels[0], outputs).double().numpy()
    linear = fits(inputs, wanted)[", the mean of both"]
    tokenizer = Tokenizer.train(texts[0], kind="wordpiece", size=WORDS, lowercase=True)
    ids = [[tokenizer.encode(text) for text in part] for part in texts]
    layer = trained(ids[0], labels[0], vocab=len(tokenizer), outputs=outputs, epochs=epochs)
    with torch.no_grad():
        found = torch.cat([layer(*padded(ids[1][start : start + 256])) for start in range(0, len(ids[1]), 256)])
    parts = torch.stack([torch.from_numpy(linear).float(), found])
    both, half = torch.empty_like(found), torch.arange(len(found)) % 2 == 0
    right = F.one_hot(labels[1], outputs)
    for scored in (half, ~half):
        both[scored] = weighted_sum(parts[:, scored], fit_weights(parts[:, ~scored], right[~scored]))
    return {"n-grams": parts[0], "convolutions": found, "both": both}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="*", help=f"{', '.join(SETS)}, squad ({SQUAD}): all, unless some are named")
    parser.add_argument("--folds", type=int, default=2, help="of five")
    parser.add_argument("--epochs", type=int, default=10)
    given = parser.parse_args()
    use_threads()
    print("| data | part | accuracy | loss |\n|---|---|---|---|")
    for name in given.sets or [*SETS, "squad"]:
        pairs = texts_and_labels(name, given.folder)
        names = sorted({label for _, label in pairs})
        right = torch.tensor([names.index(label) for _, label in pairs])
        scores: dict[str, list[tuple[float, float]]] = {}
        for held in np.array_split(np.random.default_rng(1).permutation(len(pairs)), 5)[: given.folds]:
            rest = np.setdiff1d(np.arange(len(pairs)), held)
            texts = [pairs[index][0] for index in rest], [pairs[index][0] for index in held]
            found = fold(texts, (right[rest], right[held]), outputs=len(names), epochs=given.epochs)
            for part, logits in found.items():
                accuracy = float((logits.argmax(1) == right[held]).float().mean())
                scores.setdefault(part, []).append((accuracy, float(F.cross_entropy(logits, right[held]))))
        for part, each in scores.items():
            accuracy, loss = np.mean(each, axis=0)
            print(f"| {name} | {part} | {100 * accuracy:.1f} | {loss:.3f} |", flush=True)


if __name__ == "__main__":
    main()
