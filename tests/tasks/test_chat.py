"""`chat`: learns answers from conversations in every usual form; the loss is that of the answers alone."""

import json
from pathlib import Path

import pytest
import torch
from support.task_run import losses, started, trained

import headway
from headway.data.read import read
from headway.data.row import Row
from headway.errors import DataError, InputError
from headway.tasks.chat import conversation

QUESTION = "What is the capital of Peru?"


def test_it_learns_to_answer_and_to_end(tmp_path: Path) -> None:
    task, model, data = started("chat", rows=120)
    curve = losses(trained(task, model, data, folder=tmp_path, steps=60))
    assert curve[-1] < curve[0] / 2
    scores = task.evaluate(model.eval(), list(data.test())[:8])
    assert scores["perplexity"] > 1 and 0 <= scores["ended"] <= 1
    assert isinstance(task.predict(model, [QUESTION], temperature=0.0, max_new_tokens=5)[0], str)


def test_only_answers_count() -> None:
    task, model, _ = started("chat", rows=20)
    messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": "The capital is Lima."}]
    (example,) = task.examples(Row({"messages": messages}, "x:1"))
    batch = task.batch([example], model)
    loss = task.loss(model.eval(), batch).total.item()
    logits = model(torch.tensor([example["ids"][:-1].tolist()])).logits[0]
    answers = [i for i, on in enumerate(example["learnt"][1:]) if on]
    wanted = torch.tensor(example["ids"][1:].tolist())
    expected = torch.nn.functional.cross_entropy(logits[answers], wanted[answers], reduction="sum")
    assert loss == pytest.approx(float(expected), rel=1e-5)
    assert batch.count == len(answers) < len(wanted)
    assert example["ids"][answers[-1] + 1] == task.tokenizer.eos_id  # the end is learnt


def test_forms_of_files(tmp_path: Path) -> None:
    forms = {
        "openai.jsonl": {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
        "share.jsonl": {"id": 3, "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
        "columns.jsonl": {"prompt": "a", "response": "b"},
        "alpaca.jsonl": {"instruction": "a", "input": "", "output": "b"},
    }
    for name, record in forms.items():
        (tmp_path / name).write_text(json.dumps(record) + "\n")
        (row,) = read(tmp_path / name, fields=("messages",))
        assert conversation(row) == [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], name
    (tmp_path / "system.csv").write_text("system,instruction,input,output\nBe kind.,Add,1 and 2,3\n")
    (row,) = read(tmp_path / "system.csv", fields=("messages",))
    assert conversation(row)[:2] == [
        {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Add\n\n1 and 2"}
    ]  # fmt: skip


def test_a_column_of_tools(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    tool = {"type": "function", "function": {"name": "look_up"}}
    lines = [{"messages": talk, "tools": [tool]}, {"messages": talk, "tools": json.dumps([tool])}, {"messages": talk}]
    (tmp_path / "tools.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    rows = list(read(tmp_path / "tools.jsonl", fields=("messages",)))
    task, _, _ = started("chat", rows=20)
    texts = [task.tokenizer.decode(task.examples(row)[0]["ids"]) for row in rows]
    assert texts[0] == texts[1] and ["look_up" in text for text in texts] == [True, True, False]
    asked = task.model_input(rows[0])
    assert asked == {"messages": talk[:1], "tools": [tool]} == task.input_kind.parse(json.dumps(asked))
    assert "look_up" in task.tokenizer.decode(task.prompt(asked, where=""))
    assert task.input_kind.is_several([asked, asked]) and not task.input_kind.is_several(asked)
    assert not task.input_kind.is_several(asked["messages"])
    with pytest.raises(DataError, match=r"x\.jsonl:3: tools: expected a list of functions"):
        task.examples(Row({"messages": talk, "tools": {"name": "f"}}, "x.jsonl:3"))


def test_rows_on_one_line_are_different_rows(tmp_path: Path) -> None:
    task, model, _ = started("chat", rows=20)
    talks = [{"instruction": f"What is {i}?", "response": f"It is {i}."} for i in range(3)]
    (tmp_path / "one.json").write_text(json.dumps(talks))
    rows = list(read(tmp_path / "one.json", fields=("messages",)))
    assert len({row.where for row in rows}) == 1
    task.encode_ahead(rows)
    texts = [task.tokenizer.decode(example["ids"]) for row in rows for example in task.examples(row)]
    assert [f"It is {i}." in text for i, text in enumerate(texts)] == [True] * 3
    assert task.quick_evaluate(model, rows)["tokens"] == sum(
        example["learnt"].sum() for row in rows for example in task.examples(row)
    )


def test_wrong_rows_are_named() -> None:
    task, _, _ = started("chat", rows=20)
    with pytest.raises(DataError, match=r"x\.jsonl:7: messages: message 1: its role is 'king'"):
        task.examples(Row({"messages": [{"role": "king", "content": "a"}]}, "x.jsonl:7"))
    with pytest.raises(DataError, match=r"x\.jsonl:8: messages: .* no message of the assistant"):
        task.examples(Row({"messages": [{"role": "user", "content": "a"}]}, "x.jsonl:8"))
    with pytest.raises(InputError, match="input 1: message 1"):
        task.prompt([{"role": "user", "content": 3}], where="input 1")


def test_a_saved_model_keeps_its_template_and_chats(tmp_path: Path) -> None:
    from headway.jobs.chat import Conversation

    trained = headway.train(
        "chat", out=tmp_path / "run", steps=2,
        settings={"model.width": 32, "model.layers": 1, "model.heads": 2, "task.vocab": 300, "eval_every": 0},
    )  # fmt: skip
    assert trained.scores["loss"] > 0
    model = headway.load(tmp_path / "run")
    assert model.processor.tokenizer.chat_template
    assert isinstance(model([{"role": "user", "content": QUESTION}], temperature=0.0, max_new_tokens=4), list | str)
    talk = Conversation(model, max_new_tokens=4, temperature=0.0)
    assert talk.say(QUESTION) == model(QUESTION, max_new_tokens=4, temperature=0.0).strip()
