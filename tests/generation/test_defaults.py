"""A published model generates as its own files say: the same ids as the reference library's `generate`."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import headway
from headway.cli import app
from headway.errors import ConfigError
from headway.generation.defaults import FILE, GenerationDefaults, read_defaults
from headway.jobs.chat import Conversation
from headway.preprocess.text import Tokenizer

TEXTS = ["one two three", "a rather longer sentence than the first one", "four"]
TOKENIZER = Tokenizer.train(TEXTS, kind="bpe", size=300)  # <pad> 0, <s> 1, </s> 2
VOCAB = len(TOKENIZER)
SMALL = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
         "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "init_std": 0.6,
         "max_position_embeddings": 64, "scale_embedding": False}  # fmt: skip
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def model_of(family: str) -> Any:
    import transformers as hf

    torch.manual_seed(0)
    both = {"vocab_size": VOCAB, **IDS}
    match family:
        case "mbart" | "bart" | "marian":
            name = {"mbart": "MBart", "bart": "Bart", "marian": "Marian"}[family]
            config = getattr(hf, f"{name}Config")(**both, **SMALL, decoder_start_token_id=2, forced_eos_token_id=None)
            kind = hf.MarianMTModel if family == "marian" else getattr(hf, f"{name}ForConditionalGeneration")
            return kind(config)
        case "t5":
            shape = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "initializer_factor": 3.0}
            return hf.T5ForConditionalGeneration(hf.T5Config(**both, **shape, decoder_start_token_id=0))
        case "llama":
            shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
            return hf.LlamaForCausalLM(hf.LlamaConfig(**both, **shape, initializer_range=0.5))
        case _:
            shape = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "initializer_range": 0.5}
            return hf.GPT2LMHeadModel(hf.GPT2Config(**both, **shape))


def published(folder: Path, family: str, defaults: dict[str, Any], *, in_config: bool = False) -> Path:
    """A folder as the reference library saves it, its generation defaults in one file or the other."""
    model_of(family).save_pretrained(folder)
    TOKENIZER.save(folder)
    if in_config:
        (folder / FILE).unlink(missing_ok=True)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | defaults))
    else:
        (folder / FILE).write_text(json.dumps({**IDS, **defaults}))
    return folder


def reference_ids(folder: Path, prompt: list[int], **options: Any) -> list[int]:
    import transformers as hf

    config = json.loads((folder / "config.json").read_text())
    model = getattr(hf, config["architectures"][0]).from_pretrained(folder).eval()
    found = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), **options)[0].tolist()
    return found[1 if model.config.is_encoder_decoder else len(prompt) :]


def check(folder: Path, ours: dict[str, Any] | None = None, theirs: dict[str, Any] | None = None) -> list[list[int]]:
    """Compares the ids of every text; returns ours."""
    bundle = headway.load(folder)
    task: Any = bundle.find_task()
    out = []
    for text in TEXTS:
        answer = bundle(text, details=True, logprobs=True, **(ours or {}))
        prompt = task.source_ids(text, where="") if bundle.model.reads_source else task.prompt(text)
        out.append([token["id"] for token in answer["tokens"]])
        assert out[-1] == reference_ids(folder, prompt, **(theirs or {})), text
    return out


ENCODER_DECODERS: list[tuple[str, dict[str, Any]]] = [
    ("mbart", {"forced_bos_token_id": 17, "decoder_start_token_id": 2, "max_length": 12, "num_beams": 3}),
    ("mbart", {"forced_bos_token_id": 17, "max_new_tokens": 9, "decoder_start_token_id": 2}),
    ("mbart", {"forced_bos_token_id": 9, "decoder_start_token_id": 5, "max_length": 8,
               "begin_suppress_tokens": [20, 21]}),
    ("bart", {"num_beams": 4, "max_length": 14, "min_length": 8, "length_penalty": 2.0, "no_repeat_ngram_size": 3,
              "early_stopping": True, "forced_bos_token_id": 0, "forced_eos_token_id": 2, "decoder_start_token_id": 2}),
    ("bart", {"num_beams": 3, "max_length": 10, "early_stopping": "never", "length_penalty": 0.5,
              "repetition_penalty": 1.7, "decoder_start_token_id": 2}),
    ("marian", {"num_beams": 4, "max_length": 16, "bad_words_ids": [[0], [30, 31], [12]], "renormalize_logits": True,
                "forced_eos_token_id": 2, "decoder_start_token_id": 0}),
    ("marian", {"num_beams": 2, "max_length": 9, "suppress_tokens": [3, 4, 5, 40], "min_new_tokens": 6,
                "decoder_start_token_id": 0}),
    ("t5", {"max_new_tokens": 11, "decoder_start_token_id": 0}),
    ("t5", {"num_beams": 2, "max_new_tokens": 7, "eos_token_id": [2, 40, 41, 42], "decoder_start_token_id": 0}),
]  # fmt: skip
DECODERS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"do_sample": False, "max_new_tokens": 20, "eos_token_id": [2, *range(30, 60)]}),
    ("llama", {"num_beams": 3, "max_length": 30, "min_length": 20, "eos_token_id": [2, *range(30, 60)]}),
    ("gpt2", {"do_sample": False, "max_length": 40, "repetition_penalty": 1.3, "top_k": 5, "temperature": 0.3}),
    ("gpt2", {"do_sample": False, "max_new_tokens": 12, "no_repeat_ngram_size": 2, "forced_eos_token_id": [2, 7],
              "forced_bos_token_id": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("family", "defaults"), ENCODER_DECODERS + DECODERS)
def test_ids_are_the_references(family: str, defaults: dict[str, Any], tmp_path: Path) -> None:
    found = check(published(tmp_path / "model", family, defaults))
    first = defaults.get("forced_bos_token_id")
    assert family in ("llama", "gpt2") or first is None or all(ids[0] == first for ids in found)


@pytest.mark.parametrize(("family", "defaults"), [ENCODER_DECODERS[0], ENCODER_DECODERS[3], ENCODER_DECODERS[5]])
def test_the_keys_of_config_json_count_where_there_is_no_other_file(
    family: str, defaults: dict[str, Any], tmp_path: Path
) -> None:
    check(published(tmp_path / "model", family, defaults, in_config=True))


def test_generation_config_replaces_the_keys_of_config_json(tmp_path: Path) -> None:
    folder = published(tmp_path / "model", "bart", {"max_length": 9, "decoder_start_token_id": 2})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_beams": 4, "max_length": 20}))
    check(folder)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"beams": 1, "max_new_tokens": 5}, {"num_beams": 1, "max_new_tokens": 5}),
        ({"max_new_tokens": 30, "min_new_tokens": 20}, {"max_new_tokens": 30, "min_new_tokens": 20}),
        ({"forced_bos_id": 11, "length_penalty": 0.0}, {"forced_bos_token_id": 11, "length_penalty": 0.0}),
        ({"suppress_ids": [8, 9], "beams": 2}, {"suppress_tokens": [8, 9], "num_beams": 2}),
    ],
)  # fmt: skip
def test_explicit_options_override_the_file(ours: dict[str, Any], theirs: dict[str, Any], tmp_path: Path) -> None:
    defaults = {"num_beams": 4, "max_length": 16, "min_length": 7, "forced_bos_token_id": 5, "forced_eos_token_id": 2,
                "decoder_start_token_id": 2}  # fmt: skip
    folder = published(tmp_path / "model", "mbart", {**defaults, "bad_words_ids": [[30], [31]]})
    check(folder, ours, theirs)


def test_sampling_keys(tmp_path: Path) -> None:
    folder = published(tmp_path / "model", "llama", {"do_sample": True, "temperature": 0.6, "top_p": 0.9})
    bundle = headway.load(folder)
    assert bundle.generation.options["temperature"] == 0.6 and bundle.generation.options["top_k"] == 50
    answers = {bundle(TEXTS[0], seed=seed, max_new_tokens=8) for seed in range(6)}
    assert len(answers) > 1
    assert len({bundle(TEXTS[0], seed=seed, max_new_tokens=8, temperature=0.0) for seed in range(3)}) == 1
    assert bundle(TEXTS[0], beams=3, max_new_tokens=8)  # explicit beams turn sampling off


def test_evaluate_and_chat_follow_the_file(tmp_path: Path) -> None:
    folder = published(tmp_path / "model", *ENCODER_DECODERS[0])
    bundle = headway.load(folder)
    answers = [bundle(text) for text in TEXTS]
    (tmp_path / "pairs.tsv").write_text(
        "".join(f"{text}\t{answer}\n" for text, answer in zip(TEXTS, answers, strict=True))
    )
    assert headway.evaluate(folder, tmp_path / "pairs.tsv")["exact"] == 1.0
    chatting = {"do_sample": False, "max_new_tokens": 6, "num_beams": 2, "eos_token_id": [2, 50], "max_length": 9}
    conversation = Conversation(headway.load(published(tmp_path / "chat", "llama", chatting)))
    settings = conversation.settings
    assert (settings.temperature, settings.beams, set(settings.eos_ids)) == (0.0, 1, {2, 50})


def test_the_context_limits_the_lengths_of_a_file(tmp_path: Path) -> None:
    folder = published(tmp_path / "model", "gpt2", {"do_sample": False, "max_new_tokens": 500, "eos_token_id": 299})
    answer = headway.load(folder)(TEXTS[0], details=True, logprobs=True)
    assert len(answer["tokens"]) + len(TOKENIZER.encode(TEXTS[0])) == 64 + 1


def test_defaults_are_written_back(tmp_path: Path) -> None:
    defaults = ENCODER_DECODERS[3][1]
    for in_config in (False, True):
        folder = published(tmp_path / f"model{in_config}", "bart", defaults, in_config=in_config)
        saved = headway.load(folder).save(tmp_path / f"again{in_config}")
        assert defaults.items() <= json.loads((saved / FILE).read_text()).items()
        check(saved)


def test_a_model_trained_further_keeps_the_token_ids_and_searches_as_its_task_says(tmp_path: Path) -> None:
    start = published(tmp_path / "model", *ENCODER_DECODERS[5], in_config=True)
    (tmp_path / "pairs.tsv").write_text("".join(f"{text} {i}\t{text}\n" for i in range(4) for text in TEXTS))
    trained = headway.train("translate", tmp_path / "pairs.tsv", start=start, out=tmp_path / "run", steps=1)
    again = headway.load(trained.folder)
    assert set(again.generation.options) == {"bad_words", "renormalize", "forced_eos_ids", "eos_ids"}
    assert "num_beams" not in json.loads((trained.folder / "config.json").read_text())
    task: Any = again.find_task()
    assert task.generation_defaults == again.generation and task.generation_options()["beams"] == 5
    assert again(TEXTS[0], max_new_tokens=4) == trained.bundle(TEXTS[0], max_new_tokens=4)


def test_info_shows_them(tmp_path: Path) -> None:
    folder = published(tmp_path / "model", "bart", {"num_beams": 4, "max_length": 14, "decoder_start_token_id": 2})
    shown = CliRunner().invoke(app, ["info", str(folder)]).stdout
    [line] = [line for line in shown.splitlines() if line.startswith("generation")]
    assert "beams 4" in line and "max_length 14" in line and "eos_ids (2,)" in line and FILE in line


@pytest.mark.parametrize(
    ("stored", "named"),
    [
        ({"penalty_alpha": 0.6}, "penalty_alpha is 0.6"),
        ({"encoder_no_repeat_ngram_size": 3}, "encoder_no_repeat_ngram_size is 3"),
        ({"exponential_decay_length_penalty": [5, 1.1]}, "exponential_decay_length_penalty is"),
        ({"tomorrow": 1}, "tomorrow is 1"),
        ({"num_beams": 0}, "beams is 0"),
        ({"num_beams": 4, "do_sample": True}, r"beams \(4\) and temperature"),
        ({"temperature": "hot", "do_sample": True}, "temperature is 'hot'"),
        ({"do_sample": "yes"}, "do_sample is 'yes'"),
        ({"eos_token_id": "</s>"}, "eos_ids contains '</s>'"),
        ({"forced_bos_token_id": 99}, "forced_bos_token_id is 99"),
        ({"decoder_start_token_id": "a"}, "decoder_start_token_id is 'a'"),
        ({"max_length": -1}, "max_length is -1"),
        ({"bad_words_ids": [3]}, "bad_words"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(stored: dict[str, Any], named: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(stored))
    with pytest.raises(ConfigError, match=f"{FILE}: {named}"):
        read_defaults(tmp_path, {}, reads_source=True, vocab=50)


def test_keys_that_are_off_or_do_not_change_the_result_are_ignored(tmp_path: Path) -> None:
    stored = {"penalty_alpha": 0.0, "guidance_scale": None, "use_cache": True, "pad_token_id": -1, "eos_token_id": -1}
    (tmp_path / FILE).write_text(json.dumps(stored))
    found = read_defaults(tmp_path, {"num_beams": 3}, reads_source=False, vocab=50)
    assert found.options == {"eos_ids": ()}
    (tmp_path / FILE).unlink()
    assert read_defaults(tmp_path, {"hidden_size": 3}, reads_source=False, vocab=50) == GenerationDefaults()


def test_forced_decoder_ids_are_obeyed(tmp_path: Path) -> None:
    """Positions count from the start token; one without an id is free. What may not begin an answer is forbidden behind
    them."""
    defaults = {"forced_decoder_ids": [[1, 17], [2, None], [3, 9]], "max_new_tokens": 5, "decoder_start_token_id": 2}
    folder = published(tmp_path / "model", "bart", defaults)
    bundle = headway.load(folder)

    def ids() -> list[int]:
        return [token["id"] for token in bundle(TEXTS[0], details=True, logprobs=True)["tokens"]]

    free = ids()
    assert (free[0], free[2]) == (17, 9) and free[1] != 9
    (folder / FILE).write_text(json.dumps({**IDS, **defaults, "begin_suppress_tokens": [free[3]]}))
    bundle = headway.load(folder)
    assert ids()[:3] == free[:3] and ids()[3] != free[3]


@pytest.mark.parametrize(
    ("family", "forced", "message"),
    [
        ("bart", [[1, 10**6]], "forced_decoder_ids has 1000000, which is not in the model's vocabulary"),
        ("bart", [[0, 5]], "expected pairs of a position from 1 and a token id"),
        ("bart", [5], "expected pairs of a position from 1"),
        ("llama", [[1, 5]], "forced_decoder_ids is for models that read a source"),
    ],
)
def test_forced_decoder_ids_that_cannot_be_are_refused(family: str, forced: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        headway.load(published(tmp_path / "model", family, {"forced_decoder_ids": forced}))
