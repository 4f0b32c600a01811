"""Learning from preferences: the forms of rows, what is computed of them, the reference, and exact resume."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.task_run import started

import headway
from headway.bundle import Bundle
from headway.checkpoints import TensorFiles
from headway.data.read import read
from headway.data.row import Row
from headway.data.store import Store
from headway.errors import ConfigError, DataError, InputError, TrainingError
from headway.preprocess.processor import Processor
from headway.tasks import preferences
from headway.tasks.chat import Chat

ROWS = 60
COUNTRIES = ["Peru", "Chile", "Cuba", "Kenya", "Japan", "Italy", "Spain", "Ghana", "Egypt", "Norway"]


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained chat model in a folder."""
    torch.manual_seed(0)
    task, model, _ = started("chat", rows=60, context=64, vocab=400)
    folder = tmp_path_factory.mktemp("chat")
    Bundle(model, "headway", task.processor(Processor()), task=task).save(folder)
    return folder


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers that begin with "The" are preferred."""
    file = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    with file.open("w") as out:
        for i in range(ROWS):
            prompt = f"What is {COUNTRIES[i % 10]} number {i}?"
            good, bad = f"The {COUNTRIES[i % 10]} is {i}.", f"A {COUNTRIES[(i + 3) % 10]} or two."
            out.write(json.dumps({"prompt": prompt, "chosen": good, "rejected": bad}) + "\n")
    return file


def labelled(pairs: Path, folder: Path) -> Path:
    out = folder / "labelled.jsonl"
    with out.open("w") as file:
        for number, line in enumerate(pairs.read_text().splitlines()):
            row, good = json.loads(line), number % 2 == 0
            kept = {"prompt": row["prompt"], "completion": row["chosen" if good else "rejected"], "label": good}
            file.write(json.dumps(kept) + "\n")
    return out


def settings(**more: Any) -> dict[str, Any]:
    return {"lr": 3e-3, "batch": 8, "warmup": 0.0, "log_every": 1, "eval_every": 0, "save_every": 0, **more}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_the_forms_of_preferences(tmp_path: Path) -> None:
    whole = [[user("a"), assistant("b")], [user("a"), assistant("c")]]
    forms = {
        "texts": {"prompt": "a", "chosen": "b", "rejected": "c"},
        "share": {
            "conversations": [{"from": "human", "value": "a"}],
            "chosen": {"from": "gpt", "value": "b"},
            "rejected": {"from": "gpt", "value": "c"},
        },
        "messages": {"prompt": [user("a")], "chosen": [assistant("b")], "rejected": [assistant("c")]},
        "whole": {"chosen": whole[0], "rejected": whole[1]},
        "alpaca": {"instruction": "a", "chosen": "b", "rejected": "c", "id": 3},
    }
    for name, record in forms.items():
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(record) + "\n")
        (row,) = read(tmp_path / f"{name}.jsonl", fields=Chat.fields)
        assert list(preferences.pair(row)) == whole, name
        assert preferences.prompt_of(row) == whole[0][:1]
    (tmp_path / "kto.csv").write_text("system,prompt,completion,label\nBe kind.,a,b,True\n,a,c,0\n")
    first, second = read(tmp_path / "kto.csv", fields=Chat.fields)
    assert preferences.judged(first) == ([{"role": "system", "content": "Be kind."}, user("a")], [assistant("b")], True)
    assert preferences.judged(second)[2] is False


def test_rows_that_are_wrong_are_named() -> None:
    with pytest.raises(DataError, match=r"x:1: no prompt: give a column prompt"):
        preferences.pair(Row({"chosen": "a", "rejected": "b"}, "x:1"))
    with pytest.raises(DataError, match=r"x:2: label: expected true or false.*'sports'"):
        preferences.judged(Row({"prompt": "a", "completion": "b", "desirable": "sports"}, "x:2"))
    with pytest.raises(DataError, match=r"x:3: chosen: expected text or messages, found a number"):
        preferences.pair(Row({"prompt": "a", "chosen": 3, "rejected": "b"}, "x:3"))
    with pytest.raises(DataError, match=r"x:4: chosen: its last message is not one of the assistant"):
        preferences.pair(Row({"prompt": "a", "chosen": [user("b")], "rejected": "b"}, "x:4"))


def test_long_prompts_lose_their_beginning_and_long_answers_their_end() -> None:
    def tokens(prompt: int, answer: int) -> preferences.Tokens:
        learnt = np.array([0] * prompt + [1] * answer, dtype=np.int8)
        return preferences.Tokens(np.arange(prompt + answer, dtype=np.int32), learnt)

    found = preferences.fit([tokens(30, 4), tokens(30, 2)], 20, bos=0)  # room for 16 of the prompt
    assert [len(each.ids) for each in found.sequences] == [20, 18]
    assert found.sequences[0].ids.tolist() == [0, *range(15, 34)]  # the first token stays: it begins every text
    assert found.sequences[0].learnt.sum() == 4
    found = preferences.fit([tokens(30, 40), tokens(30, 2)], 20, bos=None)
    assert found.sequences[0].ids.tolist() == [*range(20, 40)] and found.sequences[0].learnt.sum() == 10
    assert (found.prompt, found.prompt_limit, found.answer, found.answer_limit) == (30, 10, 40, 10)
    short = preferences.fit([tokens(3, 4), tokens(3, 2)], 20, bos=0)
    assert [each.ids.tolist() for each in short.sequences] == [[*range(7)], [*range(5)]]


@pytest.mark.parametrize("objective", ["dpo", "ipo", "robust", "kto"])
def test_training_learns_what_is_preferred(objective: str, chat_model: Path, pairs: Path, tmp_path: Path) -> None:
    file = labelled(pairs, tmp_path) if objective == "kto" else pairs
    beta = 0.5 if objective == "ipo" else 0.1
    trained = headway.train(
        "chat", file, start=chat_model, out=tmp_path / "run", steps=25,
        settings=settings(**({} if objective in ("dpo", "kto") else {"task.objective": objective}), beta=beta),
    )  # fmt: skip
    task = trained.bundle.find_task()
    assert task.objective == objective
    curve = [entry for entry in trained.result.history if "loss" in entry]
    start = {"dpo": math.log(2), "robust": math.log(2), "kto": 0.5, "ipo": 1.0}[objective]
    assert curve[0]["loss"] == pytest.approx(start, abs=1e-4)  # at first the model is its own reference
    assert trained.scores["loss"] < start - 0.05
    if objective == "kto":
        assert trained.scores["good_reward"] > trained.scores["bad_reward"]
    else:
        assert curve[-1]["reward_accuracy"] > 0.9 and trained.scores["reward_accuracy"] == 1.0
        assert trained.scores["margin"] == pytest.approx(
            trained.scores["chosen_reward"] - trained.scores["rejected_reward"], abs=1e-5
        )


def test_the_reference_is_computed_once_and_stored(chat_model: Path, pairs: Path, tmp_path: Path) -> None:
    headway.train("chat", pairs, start=chat_model, out=tmp_path / "run", steps=2, settings=settings(keep_states=True))
    index = json.loads((tmp_path / "run/training/examples/index.json").read_text())
    store = Store.open(tmp_path / "run/training/examples", index["key"])
    assert store is not None and store.schema["reference"].dtype == "float32"
    bundle = headway.load(chat_model)
    task = bundle.find_task()
    example = store[3]
    for number, tokens in enumerate(preferences.stored_sequences(example)):
        ids = torch.tensor(tokens.ids.astype("int64"))
        with torch.no_grad():
            log_probabilities = bundle.model(ids[None, :-1]).logits[0].log_softmax(-1)
        picked = log_probabilities.gather(1, ids[1:, None])[:, 0]
        expected = picked[torch.tensor(tokens.learnt[1:].astype(bool))].sum()
        assert example["reference"][number] == pytest.approx(float(expected), abs=1e-4)
    assert task.tokenizer.decode(store[0]["first_ids"]).startswith("User: What is")


def test_a_resumed_run_is_the_same_run(chat_model: Path, pairs: Path, tmp_path: Path) -> None:
    whole = headway.train(
        "chat",
        pairs,
        start=chat_model,
        out=tmp_path / "whole",
        steps=4,
        settings=settings(save_every=2, keep_states=True),
    )
    shutil.copytree(tmp_path / "whole", tmp_path / "part")
    first, last = sorted((tmp_path / "part/training").glob("state-*"))
    shutil.rmtree(last)  # as if it had been stopped after the first
    (tmp_path / "part/training/scores.json").unlink()
    again = headway.resume(tmp_path / "part")
    assert first.is_dir() and again.result.steps == 4
    assert again.scores == whole.scores
    assert TensorFiles(tmp_path / "part").checksums() == TensorFiles(tmp_path / "whole").checksums()
    store = next((tmp_path / "part/training/examples").glob("first_ids.bin"))
    store.write_bytes(store.read_bytes()[:-4])
    with pytest.raises(TrainingError, match="weights are trained ones"):  # they are not the reference any more
        headway.resume(tmp_path / "part", steps=8)


def test_evaluate_compares_with_a_reference(chat_model: Path, pairs: Path, tmp_path: Path) -> None:
    trained = headway.train("chat", pairs, start=chat_model, out=tmp_path / "run", steps=15, settings=settings())
    alone = headway.evaluate(tmp_path / "run", pairs)
    assert {"likelihood_accuracy", "token_likelihood_accuracy"} <= alone.keys() and "reward_accuracy" not in alone
    both = headway.evaluate(tmp_path / "run", pairs, reference=chat_model)
    assert both["likelihood_accuracy"] == alone["likelihood_accuracy"] and both["reward_accuracy"] > 0.9
    held = headway.evaluate(tmp_path / "run", reference=chat_model)
    assert held["reward_accuracy"] == pytest.approx(trained.scores["reward_accuracy"])
    assert held["loss"] == pytest.approx(trained.scores["loss"], abs=1e-4)
    itself = headway.evaluate(chat_model, pairs, reference=chat_model)
    assert itself["margin"] == pytest.approx(0.0, abs=1e-5)
    with pytest.raises(InputError, match="reference"):
        headway.evaluate(tmp_path / "run", labelled(pairs, tmp_path))


def test_what_does_not_fit_together_is_refused(chat_model: Path, pairs: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="objective dpo improves a trained chat model"):
        headway.train("chat", pairs, out=tmp_path / "a", steps=1)
    with pytest.raises(ConfigError, match=r"objective kto learns from prompt, completion and label; this data has"):
        headway.train("chat", pairs, start=chat_model, out=tmp_path / "b", steps=1, settings={"objective": "kto"})
    with pytest.raises(ConfigError, match=r"label_smoothing from 0 up to 0\.5"):
        headway.train("chat", pairs, start=chat_model, out=tmp_path / "c", steps=1, settings={"label_smoothing": 0.5})
    report = headway.check("chat", pairs, start=chat_model)
    assert "dpo" in report.extra["objective"] and report.held_out
