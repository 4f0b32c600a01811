"""A conversation → ids, by the model's own chat template.

What people say is data. Their words pass through the template with every control token in them broken by a mark, so
that afterwards those that the template wrote are read as control tokens, and those that a person wrote as plain text.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.errors import CheckpointError, InputError
from headway.preprocess.text import CONTROL, Tokenizer

ROLES = ("system", "user", "assistant")
MARK = "\ufdd0"  # no character, by the Unicode standard, so it stands in no text
SECONDS = 3  # on the processor
PATIENCE = 20  # times as long, for a processor that is busy with others
MOST = 4 * 2**20  # characters

PLAIN = (  # for models that come without a template
    "{{ bos_token }}{% for message in messages %}"
    "{{ message.role | capitalize }}: {{ message.content | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
PLAIN_STOPS = ("\nUser:", "\nSystem:", "\nAssistant:")  # where a model would go on with the others' lines

Message = Mapping[str, Any]


def chat_ids(tokenizer: Tokenizer, messages: Sequence[Message], *, answer: bool = True, bos: bool = True) -> list[int]:
    """The conversation as the model was taught to read it; `answer`: up to where the assistant is to go on. Without
    `bos` the template finds no token to begin a text with."""
    check(messages)
    controls = _pattern(tokenizer.controls)
    broken = [
        {**message, "content": controls.sub(lambda found: found[0][0] + MARK + found[0][1:], message["content"])}
        for message in messages
    ]
    names = {
        "messages": broken,
        "add_generation_prompt": answer,
        **{f"{role}_token": tokenizer.roles.get(role, "") for role in ("bos", "eos", "pad", "unk")},
        **({} if bos else {"bos_token": ""}),
    }
    text = render(tokenizer.chat_template or PLAIN, names)
    return tokenizer.encode_controlled(controls.sub(lambda found: CONTROL + found[0], text).replace(MARK, ""))


def turn_ends(tokenizer: Tokenizer) -> list[int]:
    """The control tokens that the template writes right behind what the assistant says."""
    if tokenizer.chat_template is None:
        return []
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    before, whole = chat_ids(tokenizer, said[:1]), chat_ids(tokenizer, said, answer=False)
    controls = {tokenizer.id(name) for name in tokenizer.controls}
    return [i for i in whole[len(before) :] if i in controls][:1]


def check(messages: Sequence[Message]) -> None:
    if isinstance(messages, str | Mapping) or not messages:
        raise InputError('a conversation is a list of messages such as {"role": "user", "content": "Hello"}')
    for number, message in enumerate(messages, 1):
        role, content = (message.get("role"), message.get("content")) if isinstance(message, Mapping) else (None, None)
        if role not in ROLES:
            raise InputError(f"message {number}: its role is {role!r}; it must be {', '.join(ROLES)}")
        if not isinstance(content, str):
            raise InputError(f"message {number}: its content is {content!r:.60}, which is no text")
        wrong = next((character for character in ("\0", MARK) if character in content), None)
        if wrong is not None:
            raise InputError(f"message {number}: it contains U+{ord(wrong):04X}, which is no character; take it out")
        if role == "system" and number > 1:
            raise InputError(f"message {number}: a system message stands at the beginning only")


def render(template: str, names: Mapping[str, Any], *, seconds: int = SECONDS, most: int = MOST) -> str:
    """In a process of its own: whatever a template does, it ends in time and touches nothing."""
    asked = json.dumps({"template": template, "names": dict(names), "seconds": seconds, "most": most})
    command = [sys.executable, "-I", str(Path(__file__).with_name("chat_sandbox.py"))]
    try:
        done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=seconds * PATIENCE)
        ended = done.returncode >= 0
    except subprocess.TimeoutExpired:
        ended = False
    if not ended:
        raise CheckpointError(f"the model's chat template was not rendered within {seconds} s; is it damaged?")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise CheckpointError(f"the model's chat template could not be rendered: {last}") from None
    if "error" in answer:
        raise InputError(f"the model's chat template refused the conversation: {answer['error']}")
    return answer["text"]


def _pattern(controls: frozenset[str]) -> re.Pattern[str]:
    """Any of them, the longest first; of none, nothing."""
    return re.compile("|".join(map(re.escape, sorted(controls, key=len, reverse=True))) or r"(?!)")
