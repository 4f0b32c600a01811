"""The commands `convert` and `bench`."""

import json
from pathlib import Path

import pytest
from support.commands import headway
from support.parity import Case, make_pair
from support.writers import LLAMA, MARIAN

BERT = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 60}


def test_a_model_is_converted_reported_and_run(tmp_path: Path) -> None:
    small = ["--set", "model.width=32", "--set", "model.layers=1", "--set", "task.vocab=300"]
    assert headway("train", "generate", *small, "--steps", "2", "--out", "run", cwd=tmp_path).returncode == 0
    done = headway("convert", "run", "small", "--to", "int8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fp32 → int8" in done.stdout and "perplexity" in done.stdout and "headway run small" in done.stdout
    info = headway("info", "small", cwd=tmp_path)
    assert "in int8" in info.stdout
    parameters = [
        next(line for line in headway("info", name, cwd=tmp_path).stdout.splitlines() if "parameters" in line).split()[
            1
        ]
        for name in ("run", "small")
    ]
    assert parameters[0] == parameters[1], "as many parameters as before"
    ran = headway("run", "small", "the", "--max-new-tokens", "5", cwd=tmp_path)
    assert ran.returncode == 0 and ran.stdout.strip(), ran.stderr
    again = headway("convert", "run", "small", "--to", "bf16", cwd=tmp_path)
    assert again.returncode == 2 and "already holds a model" in again.stderr


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        (Case("LlamaForCausalLM", LLAMA), {"decode_tokens_per_second", "seconds_to_first_token", "memory_share"}),
        (Case("MarianMTModel", MARIAN), {"decode_tokens_per_second", "seconds_to_first_token", "memory_share"}),
        (Case("BertModel", BERT), {"texts_per_second", "flop_share"}),
    ],
    ids=["decoder", "encoder-decoder", "encoder"],
)
def test_bench_measures_every_shape(case: Case, wanted: set[str], tmp_path: Path) -> None:
    make_pair(case, tmp_path / "model")
    done = headway("bench", "model", "--prompt-tokens", "16", "--new-tokens", "8", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert wanted <= facts.keys()
    assert all(facts[name] > 0 for name in wanted) and facts["peak_memory_bytes"] > facts["weight_bytes"] > 0
    for share in {"memory_share", "flop_share"} & facts.keys():
        assert 0 < facts[share] < 1
    printed = headway("bench", "model", "--weights", "int8", cwd=tmp_path)
    assert printed.returncode == 0 and "measured here" in printed.stdout, printed.stderr


def test_bench_says_what_does_not_fit(tmp_path: Path) -> None:
    make_pair(Case("LlamaForCausalLM", LLAMA), tmp_path / "model")
    done = headway("bench", "model", "--prompt-tokens", "100", cwd=tmp_path)
    assert done.returncode == 2 and "context of 64" in done.stderr
