"""What the modern recipe trains from scratch is a published architecture: the saved folder opens in the reference
library, with the head of the task, the same logits and the same token ids."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.task_run import started

import headway
from headway.bundle import Bundle
from headway.checkpoints import read_json
from headway.preprocess.processor import Processor

transformers = pytest.importorskip("transformers", reason="the reference library is a test-only dependency")

TEXTS = ["the end of the tale", "it is good"]
LIMIT = 1e-5


@dataclass(frozen=True)
class Case:
    task: str
    architecture: str  # in config.json
    opener: str  # the class that opens it
    pair: bool = False  # the input is two texts

    def __str__(self) -> str:
        return self.task


CASES = [
    Case("generate", "Qwen3ForCausalLM", "AutoModelForCausalLM"),
    Case("chat", "Qwen3ForCausalLM", "AutoModelForCausalLM"),
    Case("classify", "ModernBertForSequenceClassification", "AutoModelForSequenceClassification"),
    Case("tag", "ModernBertForTokenClassification", "AutoModelForTokenClassification"),
    Case("fill", "ModernBertForMaskedLM", "AutoModelForMaskedLM"),
    Case("embed", "ModernBertModel", "AutoModel"),
    Case("translate", "T5ForConditionalGeneration", "AutoModelForSeq2SeqLM"),
    Case("summarize", "T5ForConditionalGeneration", "AutoModelForSeq2SeqLM"),
]
OPTIONS: dict[str, dict[str, Any]] = {
    "fill": {"next_sentence": False},
    "translate": {"architecture": "t5"},
    "summarize": {"architecture": "t5"},
}


@cache
def run_folder(case: Case) -> Path:
    """Three steps from scratch, saved."""
    task, model, data = started(case.task, rows=48, **OPTIONS.get(case.task, {}))
    examples = [example for row in data.train() for example in task.examples(row)]
    batch = task.collate(task.sample(examples, 8), seeds=[(0, 0, n) for n in range(8)], where=[""] * 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    for _ in range(3):
        optimizer.zero_grad()
        task.loss(model.train(), batch).total.backward()
        optimizer.step()
    bundle = Bundle(model.eval(), "headway", model.config, task.processor(Processor()), task=task)
    return bundle.save(mkdtemp())


def reference(case: Case, folder: Path) -> Any:
    model, info = getattr(transformers, case.opener).from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


def difference(case: Case, ours: Bundle, theirs: Any, inputs: Any) -> float:
    """Of the logits (hidden states without a head) at real tokens."""
    given = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
    if ours.model.reads_source:
        given["decoder_input_ids"] = torch.tensor([[ours.model.start_id, 7, 9], [ours.model.start_id, 8, 5]])
    found = ours.logits(**given)
    with torch.no_grad():
        output = theirs(**given)
    if case.task == "answer":
        wanted = torch.stack([output.start_logits, output.end_logits], dim=-1)
    else:
        wanted = output.last_hidden_state if case.task == "embed" else output.logits
    assert found.shape == wanted.shape
    keep = given["attention_mask"].bool() if found.shape[:2] == given["input_ids"].shape else ...
    return float((found[keep] - wanted[keep]).abs().max())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_model_from_scratch_opens_elsewhere(case: Case) -> None:
    folder = run_folder(case)
    assert read_json(folder / "config.json")["architectures"] == [case.architecture]
    ours, theirs = headway.load(folder), reference(case, folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(*[TEXTS] * (1 + case.pair), padding=True, return_tensors="pt")
    mine = ours.processor.require_tokenizer("test")
    for row, text, real in zip(inputs["input_ids"], TEXTS, inputs["attention_mask"].bool(), strict=True):
        assert row[real].tolist() == (mine.encode_pair(text, text).ids if case.pair else mine.encode(text))
    assert difference(case, ours, theirs, inputs) <= LIMIT


@pytest.mark.parametrize("case", CASES, ids=str)
def test_task_labels_and_dropout_come_back(case: Case, tmp_path: Path) -> None:
    ours = headway.load(run_folder(case))
    assert ours.task is not None and ours.task.name == case.task
    labels = getattr(ours.task, "labels", None)
    assert not labels or ours.labels == list(labels)
    again = headway.load(ours.save(tmp_path / "again"))
    assert again.config == ours.config and again.task.to_dict() == ours.task.to_dict()
    first, second = (load_file(folder / "model.safetensors") for folder in (ours.folder, again.folder))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_other_weights_give_other_logits(tmp_path: Path) -> None:
    """The negative control of the comparison: a norm's scale in the saved file."""
    case = CASES[0]
    ours = headway.load(run_folder(case))
    folder = ours.save(tmp_path / "other")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.self_attn.q_norm.weight"] *= 1.5
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    assert difference(case, ours, reference(case, folder), inputs) > 100 * LIMIT
