"""The evaluation harness drives our model: log-likelihoods equal ours, and a local task file works."""

import json
from pathlib import Path

import pytest
import torch

import headway
from headway.errors import ConfigError, InputError
from headway.jobs.lm_eval import evaluate_tasks, harness_model, log_likelihoods

TEXTS = [("the import", " statement"), ("a list is", " a sequence of items"), ("x", " y z")]


def harness() -> None:
    pytest.importorskip("lm_eval", reason="lm_eval is not installed (pip install lm_eval)")


def exact(model: torch.nn.Module, given: list[int], wanted: list[int]) -> float:
    with torch.no_grad():
        scores = model(torch.tensor([given + wanted])).logits[0].double().log_softmax(-1)
    return sum(float(scores[len(given) - 1 + i, token]) for i, token in enumerate(wanted))


def test_log_likelihoods(language_model: Path) -> None:
    bundle = headway.load(language_model)
    chance = torch.Generator().manual_seed(0)
    rows = [torch.randint(5, 200, (n,), generator=chance).tolist() for n in (4, 9, 30, 6, 9)]
    pairs = [(row[: len(row) // 2], row[len(row) // 2 :]) for row in rows]
    found = log_likelihoods(bundle.model, pairs, longest=64)
    assert [value for value, _ in found] == pytest.approx([exact(bundle.model, *pair) for pair in pairs], abs=1e-4)
    greedy = bundle.model(torch.tensor([rows[1]])).logits[0, -1].argmax().item()
    assert log_likelihoods(bundle.model, [(rows[1], [greedy]), (rows[1], [greedy - 1])], longest=64)[0][1] is True
    ((long, _),) = log_likelihoods(bundle.model, [(rows[2], rows[0])], longest=8)  # the context loses its beginning
    assert long == pytest.approx(exact(bundle.model, rows[2][-5:], rows[0]), abs=1e-4)


def test_without_the_harness_it_is_named(language_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(ConfigError, match="pip install lm_eval"):
        harness_model(language_model)


def test_the_harness_gets_our_numbers(language_model: Path) -> None:
    harness()
    from lm_eval.api.instance import Instance

    bundle = headway.load(language_model)
    model, tokenizer = harness_model(bundle), bundle.processor.require_tokenizer("a test")
    requests = [Instance("loglikelihood", {}, pair, 0) for pair in TEXTS]
    for (context, continuation), (value, _) in zip(
        TEXTS, model.loglikelihood(requests, disable_tqdm=True), strict=True
    ):
        whole, given = model.tok_encode(context + continuation), model.tok_encode(context)
        assert value == pytest.approx(exact(bundle.model, given, whole[len(given) :]), abs=1e-4)
    (rolling,) = model.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, ("a list is",), 0)])
    ids = tokenizer.encode("a list is", special=False)
    assert rolling == pytest.approx(exact(bundle.model, [model.prefix_token_id], ids), abs=1e-4)
    asked = Instance("generate_until", {}, ("the", {"until": [" "], "max_gen_toks": 5}), 0)
    assert isinstance(model.generate_until([asked])[0], str)


def test_a_local_task_file(language_model: Path, tmp_path: Path) -> None:
    harness()
    rows = [{"question": "the import", "choices": [" statement", " zebra"], "answer": i % 2} for i in range(4)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "words.yaml").write_text(
        "task: words\ndataset_path: json\ndataset_kwargs:\n  data_files:\n"
        f"    test: {tmp_path / 'rows.jsonl'}\n"
        "test_split: test\noutput_type: multiple_choice\ndoc_to_text: '{{question}}'\ndoc_to_choice: choices\n"
        "doc_to_target: answer\nmetric_list:\n  - metric: acc\n"
    )
    found = evaluate_tasks(language_model, [tmp_path / "words.yaml"])
    assert found["words"]["acc,none"] == 0.5  # one choice is right in half of the rows
    with pytest.raises(InputError, match="no such task file"):
        evaluate_tasks(language_model, [tmp_path / "no.yaml"])
