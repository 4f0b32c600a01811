"""What convolutions over tokens (`layers/token_convolution.py`) add to the linear map of n-grams beside a classifier,
without a transformer: cross-validation on a training file.

    python -m benchmarks.token_convolution DATA-FOLDER [trec sst2 squad] [--folds 2] [--mixup 0.5] [--vectors]

The sets are those of `benchmarks.ngram_fit`. The convolutions are trained with the batches, rates and schedule of
`headway train classify`; the weights of both parts are fitted to the half of a fold that is not scored. `--mixup` mixes
pairs of pooled features and their labels with shares of this Beta distribution (Zhang et al. 2018; Guo et al. 2019),
`--vectors` begins with vectors of the tokens that word2vec learns from the training texts.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import headway
from benchmarks.classify import SETS
from benchmarks.ngram_fit import SQUAD, fits, ngram_inputs, texts_and_labels
from benchmarks.timing import use_threads
from headway.layers.token_convolution import TokenConvolution, TokenConvolutionConfig
from headway.preprocess.text import Tokenizer
from headway.preprocess.words import words_of
from headway.tasks.ngram_features import fit_weights, weighted_sum
from headway.tasks.task import pad
from headway.tasks.text_settings import WORDS
from headway.training.optim import build_optimizers
from headway.training.recipes import RECIPES
from headway.training.schedule import Schedule

BATCH = 32


def trained(
    ids: list[list[int]], labels: Tensor, *, vocab: int, outputs: int, epochs: int, mixup: float, vectors: bool
) -> TokenConvolution:
    recipe = RECIPES["modern"]
    layer = TokenConvolution(outputs, TokenConvolutionConfig(vocab))
    layer.is_head = True  # type: ignore[assignment]  # as in a model: AdamW for all of it
    layer.reset(torch.Generator().manual_seed(0))
    if vectors:
        use_vectors(layer, ids)
    optimizers = build_optimizers(layer, lr=recipe["lr"], weight_decay=recipe["weight_decay"])
    schedule = Schedule(recipe["schedule"], recipe["warmup"], recipe["decay"], 0.0)
    order, steps = np.random.default_rng(0), epochs * (len(ids) // BATCH)
    batches = [part for _ in range(epochs) for part in np.array_split(order.permutation(len(ids)), len(ids) // BATCH)]
    for step, rows in enumerate(batches):
        optimizers.scale_lr(schedule.factor(step, steps))
        optimizers.zero_grad()
        logits, wanted = layer(*padded([ids[row] for row in rows])), F.one_hot(labels[rows], outputs).float()
        if mixup:  # the last layer is linear, so that mixed logits are those of mixed features
            share, other = order.beta(mixup, mixup), torch.from_numpy(order.permutation(len(rows)))
            logits, wanted = (share * each + (1 - share) * each[other] for each in (logits, wanted))
        F.cross_entropy(logits, wanted).backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), recipe["clip"])
        optimizers.step()
    return layer.eval()


@torch.no_grad()
def use_vectors(layer: TokenConvolution, ids: list[list[int]]) -> None:
    """Those of word2vec's skip-gram, learnt from the same texts, on the scale of the first values; tokens that occur
    once keep theirs."""
    table, rows = layer.tokens.weight, [{"text": " ".join(f"t{token}" for token in text)} for text in ids]
    settings = {"architecture": "skip-gram", "dimensions": table.shape[1], "min_count": 2, "threads": 1}
    with TemporaryDirectory() as folder:
        found = headway.train("vectors", rows, out=Path(folder) / "run", epochs=20, settings=settings)
    task, learnt = found.bundle.find_task(), found.bundle.model.token_table
    numbers = {int(word[1:]): index for index, word in enumerate(words_of(task.tokenizer)) if word.startswith("t")}
    places = torch.tensor(list(numbers)), torch.tensor(list(numbers.values()))
    table[places[0]] = learnt[places[1]] * (table.std() / learnt[places[1]].std())


def padded(ids: list[list[int]]) -> tuple[Tensor, Tensor]:
    rows = [np.array(text) for text in ids]
    return pad(rows, 0), pad([np.ones_like(row) for row in rows], 0).bool()


def fold(texts: tuple[list[str], list[str]], labels: tuple[Tensor, Tensor], *, outputs: int, **options: Any) -> Any:
    """Logits of each part on the held-out texts, and of both together."""
    inputs = ngram_inputs(*texts, outputs=outputs)["n-grams and characters"]
    wanted = F.one_hot(labels[0], outputs).double().numpy()
    linear = fits(inputs, wanted)[", the mean of both"]
    tokenizer = Tokenizer.train(texts[0], kind="wordpiece", size=WORDS, lowercase=True)
    ids = [[tokenizer.encode(text) for text in part] for part in texts]
    layer = trained(ids[0], labels[0], vocab=len(tokenizer), outputs=outputs, **options)
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
    parser.add_argument("--mixup", type=float, default=0.0)
    parser.add_argument("--vectors", action="store_true")
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
            options = {"epochs": given.epochs, "mixup": given.mixup, "vectors": given.vectors}
            found = fold(texts, (right[rest], right[held]), outputs=len(names), **options)
            for part, logits in found.items():
                accuracy = float((logits.argmax(1) == right[held]).float().mean())
                scores.setdefault(part, []).append((accuracy, float(F.cross_entropy(logits, right[held]))))
        for part, each in scores.items():
            accuracy, loss = np.mean(each, axis=0)
            print(f"| {name} | {part} | {100 * accuracy:.1f} | {loss:.3f} |", flush=True)


if __name__ == "__main__":
    main()
