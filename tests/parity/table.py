"""Prints the parity table: class × check × largest difference. `make parity` writes it to docs/parity.md."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import transformers
from parity.cases import CASES
from support.parity import make_pair
from support.parity_checks import CHECKS, LIMIT

FORWARD = ("logits", "layers", "padding", "batch = single", "round trip")
CACHED, GRADIENTS = "cached = uncached", "gradients (relative)"
HEAD = f"""# Parity with the reference library

Written by `make parity`. For each class, tiny random models are made by `transformers` {transformers.__version__},
opened by Headway and compared in fp32; the limit is {LIMIT:g}. The numbers are largest absolute differences over the
plain config and the variants named:

- **forward**: logits; hidden states layer by layer; with left and right padding; a padded batch against each row alone;
  the reference's logits after theirs → ours → theirs, whose files are byte-equal;
- **cached**: steps with a cache, one by one and in chunks, against one pass (not defined where rotary angles depend on
  the length);
- **gradients**: of every parameter in train mode, relative to the largest.

Each check can fail: with a norm taken out of our model, it names the first layer that differs.

What is compared is the arithmetic, the config keys and the tensor names, not published weights or tokenizers
([what was checked of each family](seeds.md#what-was-checked-of-each-family)). XLNet's two streams, permutation masks
and memories are compared in `tests/families/test_xlnet.py`, DeBERTa's enhanced mask decoder, which the reference
library lacks, in `tests/families/test_deberta.py`; the rows below have the plain head that the reference library saves.
"""


def table(cases: Iterable[tuple[str, str, dict[str, float]]]) -> str:
    """Of (class, variant, check → difference): a row for each class with the largest over its variants."""
    classes: dict[str, list[tuple[str, dict[str, float]]]] = {}
    for model, note, found in cases:
        classes.setdefault(model, []).append((note, found))
    lines = ["| class | variants | forward | cached | gradients |", "|---|---|---|---|---|"]
    for model, variants in classes.items():
        cells = [_largest(variants, names) for names in (FORWARD, (CACHED,), (GRADIENTS,))]
        notes = "; ".join(note for note, _ in variants if note)
        lines.append(f"| {model} | {notes} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _largest(variants: list[tuple[str, dict[str, float]]], names: tuple[str, ...]) -> str:
    largest = max((found[name] for _, found in variants for name in names if name in found), default=0.0)
    return f"{largest:.1e}" if largest else "–"


def main() -> None:
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    measured = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            pair = make_pair(case, Path(folder))
            found = {name: check(pair) for name, check in CHECKS.items() if name not in case.not_defined}
        del found["mutation noticed"]  # it fails if it is not
        measured.append((case.model, case.note, found))
    print(HEAD)
    print(table(measured))
    print(f"\nThe largest of all: {max(max(found.values()) for _, _, found in measured):.1e}.")


if __name__ == "__main__":
    main()
