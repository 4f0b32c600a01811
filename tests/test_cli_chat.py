"""`headway chat` through a pipe, and the conversation behind it: turns, resets, interrupts, a full context."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import headway
from headway.bundle import Bundle
from headway.cli import app
from headway.errors import HeadwayError, InputError
from headway.jobs.chat import Conversation
from headway.printable import PROSE, printable

GREEDY = ["--temperature", "0", "--max-new-tokens", "8"]


@pytest.fixture(scope="module")
def bundle(language_model: Path) -> Bundle:
    return headway.load(language_model)


def chat(*args: str | Path, **more: Any) -> Result:
    result = CliRunner().invoke(app, ["chat", *map(str, args)], **more)
    if isinstance(result.exception, HeadwayError):
        raise result.exception
    return result


def test_lines_in_answers_out(language_model: Path, bundle: Bundle) -> None:
    result = chat(language_model, *GREEDY, input="hello\n\nand then?\n")
    assert result.exit_code == 0
    conversation = Conversation(bundle, notify=print, temperature=0.0, max_new_tokens=8)
    shown = ""
    for line in ("hello", "and then?"):
        pieces: list[str] = []
        conversation.say(line, on_text=pieces.append)
        shown += printable("".join(pieces), keep=PROSE) + "\n"
    assert result.stdout == shown
    assert "no chat template" in result.stderr


def test_reset_exit_and_unknown_commands(language_model: Path) -> None:
    first = chat(language_model, *GREEDY, input="hello\n").stdout
    twice = chat(language_model, *GREEDY, input="hello\n/reset\nhello\n/what\n/exit\nnever\n")
    assert twice.stdout == 2 * first, "after /reset the same words get the same answer"
    assert "new conversation" in twice.stderr and "/what is not a command" in twice.stderr


def test_commands_change_the_conversation(language_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    lines = [
        "/undo",
        "hello",
        "/undo",
        "hello",
        "/system Be brief.",
        "again",
        "/retry",
        f"/save {file}",
        "/help",
        "/sav",
    ]
    with pytest.raises(InputError, match="no message to take back"):
        chat(language_model, *GREEDY, input=lines[0])
    result = chat(language_model, *GREEDY, input="\n".join(lines[1:]))
    kept = json.loads(file.read_text())["messages"]
    assert [message["role"] for message in kept] == ["system", "user", "assistant", "user", "assistant"]
    assert [message["content"] for message in kept[:2]] == ["Be brief.", "hello"] and kept[3]["content"] == "again"
    assert "taken back: hello" in result.stderr and "5 messages saved" in result.stderr
    assert "/retry" in result.stderr and "did you mean '/save'" in result.stderr
    assert len(result.stdout.splitlines()) >= 4  # hello, hello, again, and again once more


def test_one_message_as_an_argument(language_model: Path) -> None:
    once = chat(language_model, "hello", *GREEDY)
    assert once.exit_code == 0 and once.stdout == chat(language_model, *GREEDY, input="hello\n").stdout


def test_earlier_messages_are_part_of_the_prompt(bundle: Bundle) -> None:
    conversation = Conversation(bundle, system="be brief", temperature=0.0, max_new_tokens=8)
    streamed: list[str] = []
    answer = conversation.say("hello", on_text=streamed.append)
    assert "".join(streamed).rstrip() == answer
    assert [message["role"] for message in conversation.messages] == ["user", "assistant"]
    conversation.say("again")
    assert [message["content"] for message in conversation.messages[:3]] == ["hello", answer, "again"]
    other = Conversation(bundle, system="be long", temperature=0.0, max_new_tokens=8)
    assert conversation._fit([{"role": "user", "content": "x"}]) != other._fit([{"role": "user", "content": "x"}])


def test_a_full_context_is_an_error_without_overflow_window(bundle: Bundle) -> None:
    notes: list[str] = []
    strict = Conversation(bundle, notify=notes.append, temperature=0.0, max_new_tokens=20)
    with pytest.raises(InputError, match=r"conversation has \d+ tokens.*/reset.*--overflow window"):
        for _ in range(20):
            strict.say("some words to fill the context with")
    kept = list(strict.messages)
    assert kept and kept[-1]["role"] == "assistant", "what did not fit was not kept"
    easy = Conversation(
        bundle, system="stay", notify=notes.append, temperature=0.0, max_new_tokens=20, overflow="window"
    )
    for _ in range(8):
        easy.say("some words to fill the context with")
    assert any("oldest messages no longer fit" in line for line in notes)
    assert easy.messages[0]["role"] == "user" and len(easy.messages) < 16
    easy.say("a message longer than everything " * 30)
    assert any("this message alone" in line for line in notes)


def test_an_interrupt_ends_the_answer_and_keeps_it(bundle: Bundle) -> None:
    notes: list[str] = []
    streamed: list[str] = []

    def impatient(text: str) -> None:
        streamed.append(text)
        if len(streamed) == 3:
            raise KeyboardInterrupt

    conversation = Conversation(bundle, notify=notes.append, temperature=0.0, max_new_tokens=40)
    answer = conversation.say("hello", on_text=impatient)
    assert answer == "".join(streamed).rstrip() and notes == ["interrupted"]
    assert conversation.messages[-1] == {"role": "assistant", "content": answer}
    assert conversation.say("go on") is not None


def test_a_template_ends_its_turns(language_model: Path, tmp_path: Path) -> None:
    """A model with a template is shown it, and stops at the token that it ends a turn with."""
    bundle = headway.load(language_model)
    assert bundle.processor.tokenizer is not None
    bundle.save(tmp_path)
    (tmp_path / "checksums.json").unlink()
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings["chat_template"] = "{% for m in messages %}{{ m.role }}:{{ m.content }}<pad>{% endfor %}assistant:"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    conversation = Conversation(headway.load(tmp_path), temperature=0.0, max_new_tokens=5)
    pad, eos = bundle.processor.tokenizer.pad_id, bundle.processor.tokenizer.eos_id
    assert set(conversation.settings.eos_ids) == {7, 9, pad, eos} and conversation.settings.stop == ()
    result = chat(tmp_path, *GREEDY, input="hello\n")
    assert result.exit_code == 0 and "no chat template" not in result.stderr


def test_models_that_cannot_chat_say_so(translator: Path) -> None:
    with pytest.raises(InputError, match="chat needs a decoder"):
        chat(translator, input="hello\n")


def test_a_real_process_ends_with_its_input(language_model: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headway", "chat", str(language_model), *GREEDY],
        input="hello\n", capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.endswith("\n"), done.stderr
