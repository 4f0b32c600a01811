"""What the recipe `published` trains from scratch is a published architecture: the saved folder opens in the reference
library, with the head of the task, the same logits and the same token ids."""

import json
import shutil
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.task_run import SMALL

import headway
from headway import tasks
from headway.bundle import Bundle
from headway.checkpoints import read_json
from headway.checkpoints.saved import CHECKSUMS
from headway.errors import ConfigError
from headway.models.build import build
from headway.models.config import ModelConfig
from headway.models.dropout_rates import dropout_rates
from headway.models.init import initialise
from headway.preprocess.processor import Processor

transformers = pytest.importorskip("transformers", reason="the reference library is a test-only dependency")

TEXTS = ["the end of the tale", "it is good"]
LIMIT = 1e-5


@dataclass(frozen=True)
class Case:
    task: str
    architecture: str  # in config.json
    opener: str  # the class that opens it
    recipe: Any = "published"
    pair: bool = False  # the input is two texts

    def __str__(self) -> str:
        return self.task


CASES = [
    Case("generate", "Qwen3ForCausalLM", "AutoModelForCausalLM", recipe="modern"),
    Case("chat", "Qwen3ForCausalLM", "AutoModelForCausalLM", recipe="modern"),
    Case("classify", "ModernBertForSequenceClassification", "AutoModelForSequenceClassification"),
    Case("tag", "ModernBertForTokenClassification", "AutoModelForTokenClassification"),
    Case("answer", "ModernBertForQuestionAnswering", "AutoModelForQuestionAnswering", pair=True),
    Case("fill", "ModernBertForMaskedLM", "AutoModelForMaskedLM"),
    Case("embed", "ModernBertModel", "AutoModel"),
    Case("translate", "T5ForConditionalGeneration", "AutoModelForSeq2SeqLM"),
    Case("summarize", "T5ForConditionalGeneration", "AutoModelForSeq2SeqLM"),
]
OPTIONS: dict[str, dict[str, Any]] = {"fill": {"next_sentence": False}}


@cache
def saved(case: Case) -> tuple[Path, ModelConfig]:
    """The folder of a model after three steps from scratch, and its config."""
    rows = tasks.find(case.task).builtin.rows(split="train", size=24)
    task = tasks.find(case.task).from_data(
        tasks.find(case.task).scan(rows), tokenizer=None, options=OPTIONS.get(case.task, {})
    )
    model = build(task.config(replace(SMALL, dropout=0.1), case.recipe))
    initialise(model, case.recipe, seed=0)
    examples = [example for row in rows for example in task.examples(row)]
    batch = task.collate(task.sample(examples, 8), seeds=[(0, 0, n) for n in range(8)], where=[""] * 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    for _ in range(3):
        optimizer.zero_grad()
        task.loss(model.train(), batch).total.backward()
        optimizer.step()
    bundle = Bundle(model.eval(), "headway", task.processor(Processor()), task=task)
    return bundle.save(mkdtemp()), model.config


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
    folder, _ = saved(case)
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
    folder, config = saved(case)
    ours = headway.load(folder)
    assert ours.task is not None and ours.task.name == case.task
    labels = getattr(ours.task, "labels", None)
    assert not labels or ours.labels == list(labels)
    assert ours.config == config and set(dropout_rates(config).values()) == {0.0, 0.1}
    again = headway.load(ours.save(tmp_path / "again"))
    assert again.config == config and again.task is not None and again.task.to_dict() == ours.task.to_dict()
    first, second = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "again"))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({"stack.block.drop": 0.1}, "stack.block.drop is not a dropout rate of this model"),
        ({"stack.block.dropout": 1.5}, "from 0 to below 1"),
        ({"stack.block.dropout": "high"}, "dropout"),
        ([0.1], "dropout"),
    ],
)
def test_dropout_rates_of_a_folder_are_checked(rates: Any, message: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved(CASES[0])[0], tmp_path / "model"))
    kept = read_json(folder / "headway.json")
    (folder / "headway.json").write_text(json.dumps(kept | {"dropout": rates}))
    (folder / CHECKSUMS).unlink()
    with pytest.raises(ConfigError, match=message):
        headway.load(folder)


def test_other_weights_give_other_logits(tmp_path: Path) -> None:
    """The negative control of the comparison: a norm's scale in the saved file."""
    case = CASES[0]
    ours = headway.load(saved(case)[0])
    folder = ours.save(tmp_path / "other")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.self_attn.q_norm.weight"] *= 1.5
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    assert difference(case, ours, reference(case, folder), inputs) > 100 * LIMIT
