"""A conversation → ids, by the model's own chat template.

Message content is data. Control tokens in it are broken by a mark before the template is rendered, so that only those
written by the template itself are encoded as control tokens; those typed by a user are encoded as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from headway.errors import CheckpointError, InputError
from headway.limited_process import CrashError, KeptProcess, LimitError
from headway.preprocess.text import CONTROL, Tokenizer

ROLES = ("system", "user", "assistant", "tool")
MARK = "\ufdd0"  # a noncharacter of the Unicode standard: it occurs in no text
SANDBOX = Path(__file__).with_name("chat_sandbox.py")
CPU_SECONDS = 3
MEMORY = 2**29  # bytes of address space
RENDERER = KeptProcess(SANDBOX, memory=MEMORY)
MAX_CHARACTERS = 4 * 2**20
PER_SECOND = 50  # conversations that are given a further second

PLAIN = (  # for models that come without a template
    "{{ bos_token }}{% for message in messages %}"
    "{{ message.role | capitalize }}: {{ (message.content or '') | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
PLAIN_STOPS = ("\nUser:", "\nSystem:", "\nAssistant:")  # the beginnings of the next turn

Message = Mapping[str, Any]
Tools = list[dict[str, Any]]  # JSON schemas of functions, as in OpenAI's requests


def chat_ids(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    *,
    tools: Tools | None = None,
    answer: bool = True,
    bos: bool = True,
) -> list[int]:
    """The conversation in the model's own format. `answer`: ends where the assistant's reply begins. Without `bos` the
    template's bos_token is empty."""
    check(messages)
    broken, described = break_controls(tokenizer, messages), break_controls(tokenizer, tools)
    variables = template_variables(tokenizer, broken, tools=described, answer=answer, bos=bos)
    text = render(tokenizer.chat_template or PLAIN, variables)
    controls = _pattern(tokenizer.controls)
    return tokenizer.encode_controlled(controls.sub(lambda found: CONTROL + found[0], text).replace(MARK, ""))


def break_controls(tokenizer: Tokenizer, value: Any) -> Any:
    """The same messages with a mark inside every control token of their texts."""
    if isinstance(value, str):
        return _pattern(tokenizer.controls).sub(lambda found: found[0][0] + MARK + found[0][1:], value)
    if isinstance(value, Mapping):
        return {key: break_controls(tokenizer, item) for key, item in value.items()}
    return [break_controls(tokenizer, item) for item in value] if isinstance(value, list | tuple) else value


def template_variables(
    tokenizer: Tokenizer, messages: Sequence[Message], *, answer: bool, tools: Tools | None = None, bos: bool = True
) -> dict[str, Any]:
    """The names that `transformers` defines for a template: `tools` and `documents` are none where there are none."""
    return {
        "messages": list(messages),
        "tools": tools,
        "documents": None,
        "add_generation_prompt": answer,
        **{f"{role}_token": tokenizer.roles.get(role, "") for role in ("bos", "eos", "pad", "unk")},
        **({} if bos else {"bos_token": ""}),
    }


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
        if content is None and message.get("tool_calls"):
            continue
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
    (reply,) = render_many(template, [variables], seconds=seconds, max_characters=max_characters)
    if isinstance(reply, InputError):
        raise reply
    return reply


def render_many(
    template: str,
    conversations: Sequence[Mapping[str, Any]],
    *,
    seconds: int = CPU_SECONDS,
    max_characters: int = MAX_CHARACTERS,
) -> list[str | InputError]:
    """As `render`, for many conversations in one process: the text of each, or why the template refuses it."""
    seconds += len(conversations) // PER_SECOND
    conversations = [dict(variables) for variables in conversations]
    request = {"template": template, "conversations": conversations, "max_characters": max_characters}
    try:
        replies = RENDERER.run(request, seconds=seconds)
    except LimitError:
        reason = f"was not rendered within {seconds} s; is it damaged?"
        raise CheckpointError(f"the model's chat template {reason}") from None
    except CrashError as error:
        raise CheckpointError(f"the model's chat template could not be rendered: {error}") from None
    return [
        reply["text"]
        if "text" in reply
        else InputError(f"the model's chat template refused the conversation: {reply['error']}")
        for reply in replies
    ]


def control_pattern(tokenizer: Tokenizer) -> re.Pattern[str]:
    return _pattern(tokenizer.controls)


@cache
def _pattern(controls: frozenset[str]) -> re.Pattern[str]:
    """Matches any of them, the longest first; matches nothing if there are none."""
    return re.compile("|".join(map(re.escape, sorted(controls, key=len, reverse=True))) or r"(?!)")
