"""An LSTM language model of characters: `headway train generate --model lstm` against the recipe of char-rnn, in the
same time on one thread each: of the processor for char-rnn, of the clock for Headway, which is less on a busy machine.

    python -m benchmarks.char_rnn INPUT.TXT --minutes 30 [--only char-rnn|headway]

The recipe of char-rnn (Karpathy 2015) is written out here in plain torch: two layers of 128, windows of 50 characters,
batches of 50, RMSprop at 0.002 that falls by 3% an epoch after the tenth, gradients clamped to 5, uniform initial
weights, forget gates that begin open, the state carried from window to window. It is scored after every epoch and its
best score counts. Headway has its own settings and is scored once, at the end. The loss is that of the last tenth of
the text, with the state carried through it.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HIDDEN, LAYERS, WINDOW, BATCH = 128, 2, 50, 50
RATE, FALL, FALL_AFTER, SMOOTHING, CLAMP, UNIFORM = 2e-3, 0.97, 10, 0.95, 5.0, 0.08


class CharRNN(nn.Module):
    def __init__(self, vocab: int):
        super().__init__()
        self.vocab = vocab
        self.lstm = nn.LSTM(vocab, HIDDEN, LAYERS, batch_first=True)  # a character is a one-hot vector
        self.output = nn.Linear(HIDDEN, vocab)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -UNIFORM, UNIFORM)
        for layer in range(LAYERS):
            for kind, value in (("ih", 1.0), ("hh", 0.0)):
                with torch.no_grad():
                    getattr(self.lstm, f"bias_{kind}_l{layer}")[HIDDEN : 2 * HIDDEN] = value

    def forward(self, ids: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        hidden, state = self.lstm(F.one_hot(ids, self.vocab).float(), state)
        return self.output(hidden), state


def windows(ids: Tensor) -> list[tuple[Tensor, Tensor]]:
    """(inputs, targets), each (batch, window), in the order of the text; what does not fill a batch is left out."""
    length = (len(ids) - 1) // (BATCH * WINDOW) * WINDOW
    inputs, targets = (ids[at : at + BATCH * length].view(BATCH, length) for at in (0, 1))
    return list(zip(inputs.split(WINDOW, 1), targets.split(WINDOW, 1), strict=True))


@torch.no_grad()
def loss_of(model: CharRNN, ids: Tensor) -> float:
    """Over the whole text, read once from its beginning."""
    logits, _ = model(ids[None, :-1], None)
    return float(F.cross_entropy(logits[0], ids[1:]))


def char_rnn(text: Path, minutes: float) -> float:
    whole = text.read_text(encoding="utf-8")
    letters = {letter: number for number, letter in enumerate(sorted(set(whole)))}
    ids = torch.tensor([letters[letter] for letter in whole])
    cut = int(len(ids) * 0.9)
    model, batches = CharRNN(len(letters)), windows(ids[:cut])
    optimizer = torch.optim.RMSprop(model.parameters(), lr=RATE, alpha=SMOOTHING)
    spent, epoch, best = 0.0, 0, float("inf")  # spent: seconds of the processor
    while spent < 60 * minutes:
        state, began = None, time.process_time()
        for inputs, targets in batches:
            logits, state = model(inputs, state)
            state = tuple(part.detach() for part in state)
            optimizer.zero_grad()
            F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
            nn.utils.clip_grad_value_(model.parameters(), CLAMP)
            optimizer.step()
            if spent + time.process_time() - began >= 60 * minutes:
                break
        spent, epoch = spent + time.process_time() - began, epoch + 1
        if epoch >= FALL_AFTER:
            optimizer.param_groups[0]["lr"] *= FALL
        found = loss_of(model, ids[cut:])
        best = min(best, found)
        print(f"char-rnn: {spent:6.0f} s, epoch {epoch}, validation loss {found:.4f}, best {best:.4f}", flush=True)
    return best


def headway(text: Path, minutes: float, extra: list[str]) -> None:
    """The command as a user gives it, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["train", "generate", str(text), "--model", "lstm", "--set", "kind=char", "--minutes", str(minutes)]
        subprocess.run([sys.executable, "-m", "headway", *command, "--out", f"{folder}/run", *extra], check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"headway: {(used.ru_utime + used.ru_stime) / 60:.1f} minutes of the processor, evaluation included", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--only", choices=["char-rnn", "headway"])
    given, extra = parser.parse_known_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if given.only != "headway":
        print(f"char-rnn: best validation loss {char_rnn(given.text, given.minutes):.4f}", flush=True)
    if given.only != "char-rnn":
        headway(given.text, given.minutes, [*extra, "--threads", "1"])


if __name__ == "__main__":
    main()
