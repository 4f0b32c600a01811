"""stories15M, which continues children's stories, tuned to chat: held-out answer perplexity before and after, and the
share of held-out prompts whose answer ends by itself.

    python -m benchmarks.chat_tuning DATA-FOLDER START OUT [--steps 330] [--held-out 300]

The tuned model stays in OUT/run. Time is that of the process, so that other programs do not count.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import headway
from benchmarks.chat_data import write
from headway.data.read import Row, read
from headway.tasks.chat import Chat

SETTINGS = {"lr": 5e-4, "batch": 16, "eval_every": 150, "save_every": 0}  # chosen on valid.jsonl
LONGEST = 200  # tokens of an answer


def task_for(start: Path) -> tuple[Chat, Any]:
    """The chat task of a model that has not been tuned yet."""
    bundle = headway.load(start)
    task = Chat.from_data(Chat.scan([]), tokenizer=bundle.processor.tokenizer, options={})
    return task, task.adapt(bundle.model)


def ended(task: Chat, model: Any, rows: list[Row], **options: Any) -> float:
    """The share of answers that end by themselves."""
    prompts = [task.model_input(row) for row in rows]
    fits = [each for each in prompts if len(task.prompt(each, where="")) + LONGEST // 4 < task.context]
    found = task.predict(model, fits, details=True, max_new_tokens=LONGEST, overflow="window", **options)
    return sum(answer["finished_by"] == "eos" for answer in found) / len(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("start", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=330)
    parser.add_argument("--held-out", type=int, default=300, help="conversations, at most")
    given = parser.parse_args()
    parts = write(given.data, given.out / "data")
    for name in ("valid", "test"):  # every so many: the sources follow one another in the file
        lines = parts[name].read_text(encoding="utf-8").splitlines()
        parts[name].write_text("\n".join(lines[:: -(-len(lines) // given.held_out)]) + "\n", encoding="utf-8")
    test = list(read(parts["test"], fields=Chat.fields))
    task, model = task_for(given.start)
    before = task.quick_evaluate(model, test)
    print(
        f"before: perplexity {before['perplexity']:.1f} of {before['tokens']:,.0f} held-out answer tokens", flush=True
    )
    began = time.process_time()
    trained = headway.train(
        "chat", parts["train"], valid=parts["valid"], start=given.start, out=given.out / "run", steps=given.steps,
        settings=SETTINGS, say=print,
    )  # fmt: skip
    minutes = (time.process_time() - began) / 60
    task, model = trained.bundle.find_task(), trained.bundle.model  # type: ignore[assignment]
    after = task.quick_evaluate(model, test)
    print(f"training: {minutes:.1f} minutes of one core, {trained.result.steps} of {given.steps} steps")
    print(f"after: perplexity {after['perplexity']:.1f}; {before['perplexity'] / after['perplexity']:.1f} times lower")
    print(f"answers that end by themselves: sampled {ended(task, model, test, seed=0):.1%}", flush=True)
    print(f"answers that end by themselves: greedy {ended(task, model, test, temperature=0.0):.1%}")


if __name__ == "__main__":
    main()
