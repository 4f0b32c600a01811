"""The PEFT library itself opens adapters trained here, and its adapters open here, with the same logits."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from parity.cases import CASES as PARITY
from support.parity import inputs_for, make_pair, reference_logits
from torch import Tensor

import headway
from headway import jobs
from headway.errors import CheckpointError, ConfigError
from headway.preprocess.text import Tokenizer
from headway.training.lora import add_lora, merge_lora
from headway.training.peft_files import open_lora, save_lora

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")
LIMIT = 1e-5

TEXTS = [f"word{i % 17} and word{i % 5}" for i in range(120)]
TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40}
STARTS: dict[str, tuple[str, str, dict[str, Any]]] = {  # by reference class: task, kind of tokenizer, config
    "LlamaForCausalLM": ("generate", "bpe", TINY | {"tie_word_embeddings": True}),
    "BertForSequenceClassification": ("classify", "wordpiece", TINY | {"num_labels": 3}),
    "BertForMaskedLM": ("fill", "wordpiece", TINY),
    "T5ForConditionalGeneration": (
        "translate",
        "bpe",
        {"d_model": 32, "d_kv": 16, "num_heads": 2, "d_ff": 40, "num_layers": 2, "decoder_start_token_id": 0},
    ),
}


def published(name: str, folder: Path) -> Path:
    """A random model with a tokenizer."""
    _, tokens, config = STARTS[name]
    tokenizer = Tokenizer.train(TEXTS, kind=tokens, size=300)  # type: ignore[arg-type]
    tokenizer.save(folder)
    ids = {"pad_token_id": tokenizer.pad_id, "bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    known = {key: value for key, value in ids.items() if value is not None}
    model = kind(kind.config_class(vocab_size=len(tokenizer), **known, **config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    return folder


def rows_for(task: str, folder: Path) -> Path:
    if task in ("generate", "fill"):
        path, lines = folder / "text.txt", TEXTS
    else:
        answer = "abc" if task == "classify" else ["word1", "word2 and word3", "and"]
        path, lines = folder / "rows.tsv", [f"{text}\t{answer[i % 3]}" for i, text in enumerate(TEXTS)]
    path.write_text("\n".join(lines) + "\n")
    return path


def probe(name: str) -> dict[str, Tensor]:
    ids = torch.arange(10, 30).view(2, 10)
    return {"input_ids": ids} | ({"decoder_input_ids": ids[:, :6] + 3} if name.startswith("T5") else {})


@pytest.mark.parametrize("name", STARTS)
def test_peft_opens_an_adapter_trained_here(name: str, tmp_path: Path) -> None:
    start = published(name, tmp_path / "start")
    task = STARTS[name][0]
    short = {"generate": {"context": 16}, "translate": {"target_limit": 4, "beams": 1}}
    settings = {"eval_every": 0, "lr": 0.02, "warmup": 0.0, **short.get(task, {})}
    trained = jobs.train(
        task, rows_for(task, tmp_path), start=start, out=tmp_path / "run", steps=4, lora=2, settings=settings
    )
    ours = headway.load(trained.folder).logits(**probe(name))  # the adapters are merged
    assert torch.equal(ours, trained.bundle.logits(**probe(name)))
    base = getattr(transformers, name).from_pretrained(start).eval()
    with torch.no_grad():
        before = reference_logits(base(**probe(name)))
    theirs = peft.PeftModel.from_pretrained(base, trained.folder / "adapter").eval()
    with torch.no_grad():
        unmerged = reference_logits(theirs(**probe(name)))
        merged = reference_logits(theirs.merge_and_unload()(**probe(name)))
    assert (before - ours).abs().max() > 1e-3  # training changed something
    assert (unmerged - ours).abs().max() <= LIMIT and (merged - ours).abs().max() <= LIMIT


ADAPTERS: dict[str, tuple[str, str, dict[str, Any]]] = {  # by name: reference class, note of its case, PEFT's config
    "LLaMA, tied": ("LlamaForCausalLM", "tied", {"target_modules": "all-linear", "task_type": "CAUSAL_LM"}),
    "LLaMA, ranks": (
        "LlamaForCausalLM",
        "",
        {
            "target_modules": r".*\.(q_proj|down_proj)",
            "rank_pattern": {"down_proj": 4},
            "alpha_pattern": {"^model.layers.1.mlp.down_proj": 3},
        },
    ),
    "GPT-2": ("GPT2LMHeadModel", "", {"task_type": "CAUSAL_LM", "fan_in_fan_out": True}),
    "BERT, labels": ("BertForSequenceClassification", "", {"task_type": "SEQ_CLS"}),
    "BERT, tied": ("BertForMaskedLM", "", {"target_modules": ["query", "dense"]}),
    "T5": ("T5ForConditionalGeneration", "", {"task_type": "SEQ_2_SEQ_LM"}),
}


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.filterwarnings("ignore:loaded without a tokenizer")
def test_an_adapter_that_peft_saved_opens_here(adapter: str, tmp_path: Path) -> None:
    name, note, options = ADAPTERS[adapter]
    pair = make_pair(next(c for c in PARITY if c.model == name and note in c.note), tmp_path / "base")
    inputs = inputs_for(pair)
    config = peft.LoraConfig(r=2, lora_alpha=5, init_lora_weights=False, **options)
    theirs = peft.get_peft_model(pair.reference, config).eval()
    theirs.peft_config["default"].base_model_name_or_path = str(pair.folder)
    theirs.save_pretrained(tmp_path / "adapter")
    with torch.no_grad():
        expected = reference_logits(theirs(**inputs))
    assert (pair.ours.logits(**inputs) - expected).abs().max() > 0.01
    assert (headway.load(tmp_path / "adapter").logits(**inputs) - expected).abs().max() <= LIMIT
    open_lora(pair.model, tmp_path / "adapter", rules=headway.load(pair.folder).tensor_rules())
    assert (pair.ours.logits(**inputs) - expected).abs().max() <= LIMIT
    merge_lora(pair.model)
    assert (pair.ours.logits(**inputs) - expected).abs().max() <= LIMIT


def test_a_module_saved_beside_the_adapters_is_complete(tmp_path: Path) -> None:
    """PEFT reads all tensors of a module, also those that were not trained."""
    pair = make_pair(next(c for c in PARITY if c.model == "BertForSequenceClassification"), tmp_path / "base")
    add_lora(pair.model, rank=2, also_train=["head.project.bias"])
    pair.model.head.project.bias.data += 1
    save_lora(pair.model, tmp_path / "adapter", base=str(pair.folder), rules=headway.load(pair.folder).tensor_rules())
    theirs = peft.PeftModel.from_pretrained(pair.reference, tmp_path / "adapter").eval()
    inputs = inputs_for(pair)
    with torch.no_grad():
        assert (reference_logits(theirs(**inputs)) - pair.ours.logits(**inputs)).abs().max() <= LIMIT


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"init_lora_weights": "pissa"}, "init_lora_weights = 'pissa' changes the base model"),
        ({"alora_invocation_tokens": [3]}, "alora_invocation_tokens = .3. is not supported"),
        ({"use_qalora": True}, "use_qalora = True is not supported"),
        ({"rank_pattern": {"(a+)+": 3}}, "rank_pattern: expected an object with names of modules"),
    ],
)
def test_an_adapter_that_computes_otherwise_is_refused(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    pair = make_pair(next(c for c in PARITY if c.model == "LlamaForCausalLM"), tmp_path / "base")
    peft.get_peft_model(pair.reference, peft.LoraConfig(task_type="CAUSAL_LM")).save_pretrained(tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises((CheckpointError, ConfigError), match=says):
        open_lora(pair.model, tmp_path / "adapter", rules=pair.ours.tensor_rules())
