"""A conversation → ids, by the model's own chat template.

Message content is data. Control tokens in it are broken by a mark before the template is rendered, so that only those
written by the template itself are encoded as control tokens; those typed by a user are encoded as plain text.
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
MARK = "\ufdd0"  # a noncharacter of the Unicode standard: it occurs in no text
CPU_SECONDS = 3
TIMEOUT_FACTOR = 20  # wall-clock limit in units of CPU_SECONDS: other processes may use the CPU
MAX_CHARACTERS = 4 * 2**20

PLAIN = (  # for models that come without a template
    "{{ bos_token }}{% for message in messages %}"
    "{{ message.role | capitalize }}: {{ message.content | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
PLAIN_STOPS = ("\nUser:", "\nSystem:", "\nAssistant:")  # the beginnings of the next turn

Message = Mapping[str, Any]


def chat_ids(tokenizer: Tokenizer, messages: Sequence[Message], *, answer: bool = True, bos: bool = True) -> list[int]:
    """The conversation in the model's own format. `answer`: ends where the assistant's reply begins. Without `bos` the
    template's bos_token is empty."""
    check(messages)
    controls = _pattern(tokenizer.controls)
    broken = [
        {**message, "content": controls.sub(lambda found: found[0][0] + MARK + found[0][1:], message["content"])}
        for message in messages
    ]
    variables = {
        "messages": broken,
        "add_generation_prompt": answer,
        **{f"{role}_token": tokenizer.roles.get(role, "") for role in ("bos", "eos", "pad", "unk")},
        **({} if bos else {"bos_token": ""}),
    }
    text = render(tokenizer.chat_template or PLAIN, variables)
    return tokenizer.encode_controlled(controls.sub(lambda found: CONTROL + found[0], text).replace(MARK, ""))


def turn_ends(tokenizer: Tokenizer) -> list[int]:
    """The control token that the template writes directly after the assistant's reply (at most one)."""
    if tokenizer.chat_template is None:
        return []
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    before, whole = chat_ids(tokenizer, messages[:1]), chat_ids(tokenizer, messages, answer=False)
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
            raise InputError(f"message {number}: its content is {content!r:.60}; it must be a string")
        wrong = next((character for character in ("\0", MARK) if character in content), None)
        if wrong is not None:
            raise InputError(f"message {number}: it contains U+{ord(wrong):04X}, which is not a character; remove it")
        if role == "system" and number > 1:
            raise InputError(f"message {number}: a system message must come first")


def render(
    template: str, variables: Mapping[str, Any], *, seconds: int = CPU_SECONDS, max_characters: int = MAX_CHARACTERS
) -> str:
    """Renders in a separate process with limits on time, memory and output (chat_sandbox.py)."""
    request = json.dumps(
        {"template": template, "variables": dict(variables), "seconds": seconds, "max_characters": max_characters}
    )
    command = [sys.executable, "-I", str(Path(__file__).with_name("chat_sandbox.py"))]
    try:
        done = subprocess.run(command, input=request, capture_output=True, text=True, timeout=seconds * TIMEOUT_FACTOR)
        ended = done.returncode >= 0
    except subprocess.TimeoutExpired:
        ended = False
    if not ended:
        raise CheckpointError(f"the model's chat template was not rendered within {seconds} s; is it damaged?")
    try:
        reply = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise CheckpointError(f"the model's chat template could not be rendered: {last}") from None
    if "error" in reply:
        raise InputError(f"the model's chat template refused the conversation: {reply['error']}")
    return reply["text"]


def _pattern(controls: frozenset[str]) -> re.Pattern[str]:
    """Matches any of them, the longest first; matches nothing if there are none."""
    return re.compile("|".join(map(re.escape, sorted(controls, key=len, reverse=True))) or r"(?!)")
