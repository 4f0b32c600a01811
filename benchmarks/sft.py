"""Training on conversations against TRL's SFTTrainer: same model, conversations, batch, context, optimiser and loss.

    python -m benchmarks.sft DATA-FOLDER START [--steps 10] [--repeats 2]

Tokens (of conversations, not padding) a second of processor time. Both learn the answers alone, TRL by a template with
marks. Packed: TRL fills rows of the context's length, Headway lays the conversations of a batch end to end. Needs
`pip install trl datasets`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.chat_data import write
from benchmarks.timing import use_threads
from headway import jobs
from headway.jobs.preparation import initial_bundle, make_source
from headway.jobs.run_config import facts_of
from headway.training.loop import fit

BATCH, CONTEXT, LR, ROWS, WARMUP = 16, 256, 5e-4, 1500, 2
MARKED = (  # what Headway's default template writes, with marks around the answers
    "{{ bos_token }}{% for message in messages %}{{ message.role | capitalize }}:{% if message.role == 'assistant' %}"
    "{% generation %} {{ message.content | trim }}{{ eos_token }}{% endgeneration %}"
    "{% else %} {{ message.content | trim }}{% endif %}{{ '\\n' }}{% endfor %}"
)


class Clock:
    """Seconds and tokens after the first WARMUP steps."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step(self, status: Any) -> None:
        self.times.append(time.process_time())


def ours(file: Path, start: Path, *, steps: int, packed: bool) -> float:
    plan = jobs.make_plan(
        "chat", file, valid=file, start=start, steps=steps + WARMUP,
        settings={"lr": LR, "batch": BATCH, "task.context": CONTEXT, "task.packing": packed, "eval_every": 0,
                  "save_every": 0, "log_every": 1000},
    )  # fmt: skip
    data = jobs.open_data(plan)
    bundle = initial_bundle(plan, facts_of(plan, data))
    task, clock, tokens = bundle.find_task(), Clock(), list[int]()
    with tempfile.TemporaryDirectory() as out:
        source = make_source(task, data, Path(out), settings=plan.settings(), say=lambda _: None)
        batches = source.epoch(0)[WARMUP : steps + WARMUP]
        tokens = [len(source.store[int(i)]["ids"]) for batch in batches for i in batch]  # type: ignore[union-attr]
        fit(bundle.model, source, loss=task.loss, settings=plan.settings(), folder=out, callbacks=[clock])
    return sum(tokens) / (clock.times[-1] - clock.times[WARMUP - 1])


def theirs(file: Path, start: Path, *, steps: int, packed: bool) -> float:
    import transformers
    from datasets import load_dataset
    from trl import SFTConfig, SFTTrainer

    tokenizer = transformers.AutoTokenizer.from_pretrained(start)
    tokenizer.chat_template, tokenizer.pad_token = MARKED, tokenizer.eos_token
    times, counts = list[float](), list[int]()

    class Timing(transformers.TrainerCallback):
        def on_step_end(self, *args: Any, **more: Any) -> None:
            times.append(time.process_time())

    with tempfile.TemporaryDirectory() as out:
        trainer = SFTTrainer(
            model=transformers.AutoModelForCausalLM.from_pretrained(start, dtype="float32"),
            args=SFTConfig(
                output_dir=out, max_steps=steps + WARMUP, per_device_train_batch_size=BATCH, learning_rate=LR,
                max_length=CONTEXT, packing=packed, assistant_only_loss=True, use_cpu=True, bf16=False,
                save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True,
                gradient_checkpointing=False,
            ),
            train_dataset=load_dataset("json", data_files=str(file), split="train", cache_dir=out),
            processing_class=tokenizer,
            callbacks=[Timing()],
        )  # fmt: skip
        step = trainer.training_step

        def counted(model: Any, inputs: Any, *more: Any, **options: Any) -> Any:
            mask = inputs.get("attention_mask")
            counts.append(int(inputs["input_ids"].numel() if mask is None else mask.sum()))
            return step(model, inputs, *more, **options)

        trainer.training_step = counted
        trainer.train()
    return sum(counts[WARMUP:]) / (times[-1] - times[WARMUP - 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("start", type=Path)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    use_threads()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "some.jsonl"
        lines = write(given.data, Path(folder))["train"].read_text(encoding="utf-8").splitlines()
        file.write_text("\n".join(lines[:: len(lines) // ROWS]) + "\n", encoding="utf-8")
        for packed in (False, True):
            best = {"Headway": 0.0, "TRL": 0.0}
            sides: dict[str, Callable[..., float]] = {"TRL": theirs, "Headway": ours}
            for _ in range(given.repeats):
                for name, side in sides.items():
                    best[name] = max(best[name], side(file, given.start, steps=given.steps, packed=packed))
            ratio = best["Headway"] / best["TRL"]
            print(
                f"{'packed' if packed else 'padded'}: Headway {best['Headway']:,.0f} tokens/s, "
                f"TRL {best['TRL']:,.0f}, {ratio:.2f}x", flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()
