"""`make -C benchmarks clients`: programs that were not written here, against a server of small untrained models.

This file runs in Headway's environment; it starts the server and calls `foreign.py` in an environment of its own, with
what the answers should be.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import untrained
from support.server import TASKS, running

import headway
from headway.preprocess.image import open_image
from headway.tasks import find

QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_DISABLE_TELEMETRY": "1"}  # nothing is asked of other hosts
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


def picture() -> bytes:
    out = io.BytesIO()
    open_image(find("classify-image").builtin.rows(split="test", size=1)[0].fields["image"]).save(out, "PNG")
    return out.getvalue()


def sound() -> bytes:
    out = io.BytesIO()
    soundfile.write(out, np.sin(np.arange(12_000) / 20).astype("float32") * 0.3, 16_000, format="WAV")
    return out.getvalue()


def answers(folders: dict[str, Path], given: dict[str, Any]) -> dict[str, Any]:
    """What each model answers in this process."""
    image, speech = base64.b64decode(given["picture"]), base64.b64decode(given["sound"])
    inputs = dict.fromkeys(("classify", "tag", "summarize"), given["text"]) | {"answer": given["question"]}
    inputs |= {"fill": given["mask"], "classify-image": image, "detect": image, "transcribe": speech}
    options = {"detect": {"threshold": 0.1}}
    return {name: headway.load(folders[name])(each, **options.get(name, {})) for name, each in inputs.items()}


def expected(root: Path, folders: dict[str, Path]) -> dict[str, Any]:
    out: dict[str, Any] = {
        "text": "Ada Lovelace met Charles in London on the 3rd of May.",
        "question": {"question": "Where does Ada live?", "context": "Ada lives in Leeds."},
        "mask": "the [MASK] statement",
        "picture": base64.b64encode(picture()).decode(),
        "sound": base64.b64encode(sound()).decode(),
        "tokenizer": str(folders["writer"]),
    }
    out["ids"], out["loglikelihood"] = log_likelihoods(folders["writer"])
    translate = headway.load(folders["en-de"])
    out["translation"], out["short translation"] = translate(out["text"]), translate("the 3rd of May")
    out["vectors"] = headway.load(folders["vectors"]).embed([out["text"], "hello"]).tolist()
    out["tasks"] = answers(folders, out)
    return out


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("python", help="of the environment with the clients")
    parser.add_argument("--examples", type=int, default=10, help="requests of schemathesis for each route")
    parser.add_argument("--only", default="", help="names of clients, separated by commas; all, if left out")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        folders = {"writer": untrained.language_model(root / "writer"), "vectors": untrained.embedder(root / "vectors")}
        folders["en-de"] = untrained.translator(root / "en-de")
        for name, options in (TASKS | {"detect": {}}).items():
            folders[name] = untrained.of_task(name, root / name, **options)
        wanted = expected(root, folders)
        with running(*folders.values()) as server:
            command = [given.python, str(Path(__file__).with_name("foreign.py")), server.url, str(given.examples)]
            command += [given.only] if given.only else []
            done = subprocess.run(command, input=json.dumps(wanted), text=True, env=os.environ | QUIET)
            health = server.get("/health")
        print(f"health afterwards: {health.status}")
        return done.returncode or (health.status != 200)


if __name__ == "__main__":
    raise SystemExit(main())
