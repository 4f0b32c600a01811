"""EleutherAI's evaluation harness (`pip install lm_eval`) on a model of Headway: its tasks and metrics, our model.

    from headway.jobs.lm_eval import evaluate_tasks
    evaluate_tasks("runs/chat", ["my_task.yaml"])

`harness_model` gives the object that the harness calls; it works in this process, with the model as it is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from headway.bundle import Bundle
from headway.data.length_batches import BatchLimits, by_length
from headway.errors import ConfigError, InputError
from headway.files import open_file
from headway.jobs.chat import chat_model
from headway.loading import load
from headway.tasks.generation import generate_texts, settings_from
from headway.tasks.task import device_of, pad, padding_mask, without_none

ROWS = 16  # computed together
LONGEST = 256  # tokens of an answer, unless the task says otherwise
CONTEXT = 2048  # of a model without a limit


def evaluate_tasks(model: str | Path | Bundle, tasks: Sequence[str | Path], **options: Any) -> dict[str, Any]:
    """The harness's results by task and metric. A task is a YAML file, or the name of one of the harness's own, which
    may download its data. `options` are those of its `simple_evaluate` (limit, num_fewshot, …)."""
    _require_harness()
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    files = [Path(task) for task in tasks if str(task).endswith((".yaml", ".yml"))]
    for file in files:
        if not file.is_file():
            raise InputError(f"{file}: no such task file")
    folders = sorted({str(file.resolve().parent) for file in files})
    manager = TaskManager(include_path=folders or None, include_defaults=len(files) < len(tasks))
    names = [_task_name(Path(task)) if str(task).endswith((".yaml", ".yml")) else str(task) for task in tasks]
    found = simple_evaluate(
        harness_model(model), tasks=names, task_manager=manager, **{"bootstrap_iters": 0, **options}
    )
    return dict(found["results"])


def _task_name(file: Path) -> str:
    import yaml

    try:
        with open_file(file) as opened:
            content = yaml.safe_load(opened.read())
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise InputError(f"{file}: cannot be read as YAML: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("task"), str):
        raise InputError(f"{file}: has no name of the task (task: …)")
    return str(content["task"])


def _require_harness() -> None:
    try:
        import lm_eval  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"the evaluation harness is missing ({error}); install it: pip install lm_eval") from error


def harness_model(model: str | Path | Bundle) -> Any:
    """A decoder as the harness's LM."""
    _require_harness()
    from lm_eval.api.model import TemplateLM
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

    bundle = model if isinstance(model, Bundle) else load(model)
    decoder, tokenizer = chat_model(bundle)
    longest = decoder.max_context or CONTEXT

    class HeadwayLM(TemplateLM):
        @property
        def eot_token_id(self) -> int:
            return tokenizer.eos_id if tokenizer.eos_id is not None else 0

        @property
        def prefix_token_id(self) -> int:
            return tokenizer.bos_id if tokenizer.bos_id is not None else self.eot_token_id

        def tok_encode(self, string: str, add_special_tokens: bool | None = None, **more: Any) -> list[int]:
            ids = tokenizer.encode(string, special=add_special_tokens is not False)
            return ids[:-1] if len(ids) > 1 and ids[-1] == tokenizer.eos_id else ids

        def _loglikelihood_tokens(self, requests: Any, **more: Any) -> list[tuple[float, bool]]:
            return log_likelihoods(decoder, [(given, wanted) for _, given, wanted in requests], longest=longest)

        def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
            out = []
            for (text,) in (request.args for request in requests):
                windows = get_rolling_token_windows(
                    token_list=self.tok_encode(text, add_special_tokens=False), prefix_token=self.prefix_token_id,
                    max_seq_len=longest, context_len=1,
                )  # fmt: skip
                pairs = [make_disjoint_window(window) for window in windows]
                out.append(sum(value for value, _ in log_likelihoods(decoder, pairs, longest=longest)))
            return out

        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            return [self._answer(*request.args) for request in requests]

        def _answer(self, text: str, given: dict[str, Any]) -> str:
            until = given.get("until") or []
            options = {
                "max_new_tokens": given.get("max_gen_toks", LONGEST),
                "temperature": given.get("temperature", 0.0) if given.get("do_sample") else 0.0,
                "stop": tuple([until] if isinstance(until, str) else until),
                "eos_ids": (self.eot_token_id,),
                "overflow": "window",
            }
            ids = self.tok_encode(text)[-max(1, longest - options["max_new_tokens"]) :]
            return str(generate_texts(decoder, [ids], settings_from(options, tokenizer), tokenizer=tokenizer)[0])

    return HeadwayLM()


@torch.no_grad()
def log_likelihoods(
    model: torch.nn.Module, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], *, longest: int
) -> list[tuple[float, bool]]:
    """For each context and continuation, as ids: the continuation's log-likelihood, and whether it is what greedy
    search would generate. A context that does not fit loses its beginning."""
    rows = [([*given, *wanted][-(longest + 1) :], len(wanted)) for given, wanted in pairs]
    out: list[tuple[float, bool]] = [(0.0, True)] * len(rows)
    for group in by_length([len(ids) for ids, _ in rows], BatchLimits(rows=ROWS)):
        inputs = [rows[i][0][:-1] for i in group]
        batch = without_none(inputs=pad(inputs, 0), padding_mask=padding_mask(inputs))
        scores = model(**{name: value.to(device_of(model)) for name, value in batch.items()}).logits.float().cpu()
        for i, row in zip(group, scores, strict=True):
            ids, count = rows[i]
            wanted = torch.tensor(ids[len(ids) - count :])
            found = row[len(ids) - 1 - count : len(ids) - 1].log_softmax(-1)  # (continuation, vocabulary)
            value = float(found.gather(1, wanted[:, None]).sum())
            out[i] = value, bool((found.argmax(-1) == wanted).all())
    return out
