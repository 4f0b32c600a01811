"""Adapters of a chat run: peft, `--start` and `load` open them, and the run folder has them merged."""

import json
from pathlib import Path

import pytest
import torch

import headway

SETTINGS = {"lr": 1e-2, "batch": 8, "eval_every": 0, "save_every": 0, "task.context": 64}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny LLaMA of the reference library with a tokenizer, without a chat template."""
    transformers = pytest.importorskip("transformers")
    from headway.preprocess.text import Tokenizer

    folder = tmp_path_factory.mktemp("llama")
    texts = ["What is the capital of Peru? The capital is Lima.", "User: Assistant: How much is 1 + 2?"] * 4
    tokenizer = Tokenizer.train(texts, kind="bpe", size=320)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True, bos_token_id=tokenizer.bos_id,
        eos_token_id=tokenizer.eos_id, pad_token_id=tokenizer.pad_id,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save(folder)
    return folder


def test_adapters_of_a_chat_run(llama: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    import transformers

    rows = [{"prompt": f"What is {i} + 1?", "response": f"It is {i + 1}."} for i in range(40)]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = tmp_path / "run"
    headway.train("chat", tmp_path / "sums.jsonl", start=llama, out=run, steps=4, lora=2, settings=SETTINGS)
    merged, ids = headway.load(run), torch.arange(4, 40)[None]
    base = headway.load(llama)
    with torch.no_grad():
        wanted = merged.model(ids).logits
        assert not torch.allclose(wanted, base.model(ids).logits, atol=1e-3)  # it has learnt something
        theirs = transformers.AutoModelForCausalLM.from_pretrained(llama)
        adapted = peft.PeftModel.from_pretrained(theirs, str(run / "adapter")).eval()
        torch.testing.assert_close(adapted(ids).logits, wanted, atol=1e-4, rtol=1e-4)
        opened = headway.load(run / "adapter")
        torch.testing.assert_close(opened.model(ids).logits, wanted, atol=1e-4, rtol=1e-4)
    again = headway.train(
        "chat", tmp_path / "sums.jsonl", start=run / "adapter", out=tmp_path / "again", steps=1,
        settings={**SETTINGS, "lr": 1e-9},
    )  # fmt: skip
    with torch.no_grad():
        torch.testing.assert_close(again.bundle.model(ids).logits, wanted, atol=1e-3, rtol=1e-3)


def test_the_template_of_a_model_without_one_is_found_by_the_reference_library(llama: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    rows = [{"prompt": f"What is {i} + 1?", "response": f"It is {i + 1}."} for i in range(40)]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    headway.train("chat", tmp_path / "sums.jsonl", start=llama, out=tmp_path / "run", steps=1, settings=SETTINGS)
    messages = [{"role": "user", "content": "What is 3 + 1?"}]
    task = headway.load(tmp_path / "run").find_task()
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "run")
    found = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert list(found) == task.prompt(messages, where="")
    assert "User: What is 3 + 1?\nAssistant:" in theirs.decode(found)
