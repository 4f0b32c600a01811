"""`make clients`: programs that were not written here, against a server of small untrained models.

This file runs in Headway's environment; it starts the server and calls `foreign.py` in an environment of its own, with
what the answers should be.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import untrained
from support.server import running

import headway

OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1"}
TEXTS = ["The import statement, on the 3rd of May 1998", "hello Assistant: hello", "0123456789 - User: The import"]


def log_likelihoods(folder: Path) -> tuple[list[tuple[list[int], list[int]]], list[float]]:
    """The ids of the halves of each text, and the log-likelihood of the second after the first, in this process."""
    bundle = headway.load(folder)
    tokenizer, halves, values = bundle.processor.require_tokenizer("score"), [], []
    for text in TEXTS:
        ids = tokenizer.encode(text, special=False)
        half = len(ids) // 2
        with torch.no_grad():
            logprobs = bundle.model(torch.tensor([ids])).logits[0].log_softmax(-1)
        halves.append((ids[:half], ids[half:]))
        values.append(sum(float(logprobs[at - 1, ids[at]]) for at in range(half, len(ids))))
    return halves, values


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("python", help="of the environment with the clients")
    parser.add_argument("--examples", type=int, default=10, help="requests of schemathesis for each route")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        writer, vectors = untrained.language_model(root / "writer"), untrained.embedder(root / "vectors")
        translator = untrained.translator(root / "translator")
        labels = untrained.of_task("classify", root / "labels", vocab=300)
        halves, values = log_likelihoods(writer)
        expected: dict[str, Any] = {"ids": halves, "loglikelihood": values, "tokenizer": str(writer)}
        expected["translation"] = headway.load(translator)("the 3rd of May")
        with running(writer, vectors, labels, f"en-de={translator}") as server:
            command = [given.python, str(Path(__file__).with_name("foreign.py")), server.url, str(given.examples)]
            done = subprocess.run(command, input=json.dumps(expected), text=True, env=os.environ | OFFLINE)
            health = server.get("/health")
        print(f"health afterwards: {health.status}")
        return done.returncode or (health.status != 200)


if __name__ == "__main__":
    raise SystemExit(main())
