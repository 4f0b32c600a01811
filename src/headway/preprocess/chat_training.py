"""Conversations → ids and the tokens to learn: the assistant's answers and the token that ends each.

What is learnt is found by rendering prefixes: an answer begins where the rendering of the messages before it, with the
prompt for an answer, ends. So it works with every template, and what the template itself writes before an answer (an
empty <think></think>) is not learnt."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from headway.errors import HeadwayError, InputError
from headway.preprocess.chat import (
    MARK,
    Message,
    Tools,
    break_controls,
    check,
    control_pattern,
    render_many,
    template_variables,
)
from headway.preprocess.text import CONTROL, Tokenizer

# for models that come without a template: as the plain one, with a token that ends each answer
DEFAULT_TEMPLATE = (
    "{{ bos_token }}{% if tools %}Tools: {{ tools | tojson }}{{ '\\n' }}{% endif %}{% for message in messages %}"
    "{{ message.role | capitalize }}: {{ (message.content or '') | trim }}"
    "{% for call in message.tool_calls or [] %}{{ ' ' if message.content or not loop.first else '' }}"
    "{{ (call.function or call) | tojson }}{% endfor %}"
    "{% if message.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
EMPTY_THOUGHT = re.compile(r"\s*<think>\s*</think>\s*")  # written by a template before an answer
PROMPT_THOUGHT = re.compile(r"<think>\s*(</think>\s*)?\Z")  # at the end of a reasoning model's prompt for an answer
REWRITTEN = "it writes the messages before it in another way once the answer follows"
DROPPED = "it does not write its text; a template for pictures may read contents that are lists of parts only"
CHUNK = 1000  # conversations that are rendered in one process

# names of roles and keys in the formats that people keep conversations in
ROLE_NAMES = {
    "human": "user",
    "user": "user",
    "prompter": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}


@dataclass(frozen=True)
class Tokens:
    ids: np.ndarray  # (length)
    learnt: np.ndarray  # (length), 1 = predicted in training


def messages_of(value: Any) -> list[dict[str, Any]]:
    """Messages with role and content, from OpenAI's form or ShareGPT's (from and value)."""
    if isinstance(value, str):  # a cell of a table
        try:
            value = json.loads(value)
        except ValueError:
            raise InputError(f"expected a list of messages, as JSON, found {value!r:.60}") from None
    if not isinstance(value, list) or not value:
        raise InputError(f"expected a list of messages, found {value!r:.60}")
    return [_message(message, number) for number, message in enumerate(value, 1)]


def _message(message: Any, number: int) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InputError(f"message {number}: expected an object with role and content, found {message!r:.60}")
    role = message.get("role", message.get("from"))
    if not isinstance(role, str) or role.lower() not in ROLE_NAMES:
        raise InputError(f"message {number}: its role is {role!r:.60}; known: {', '.join(ROLE_NAMES)}")
    content = message.get("content", message.get("value", message.get("text")))
    if isinstance(content, list):  # parts, as in OpenAI's newer form
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        content = "".join(text for text in texts if isinstance(text, str))
    more = {key: message[key] for key in ("tool_calls", "tool_call_id", "name") if message.get(key) is not None}
    if "tool_calls" in more:
        more["tool_calls"] = _calls(more["tool_calls"], number)
    return {"role": ROLE_NAMES[role.lower()], "content": content, **more}


def _calls(value: Any, number: int) -> list[dict[str, Any]]:
    """The arguments of a call as an object: OpenAI's form has them as JSON, which a template would quote once more."""
    if not isinstance(value, list) or not all(isinstance(call, Mapping) for call in value):
        raise InputError(f"message {number}: tool_calls: expected a list of objects, found {value!r:.60}")
    return [_call(call) for call in value]


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    inner = call.get("function")
    return {**call, "function": _with_object(inner)} if isinstance(inner, Mapping) else _with_object(call)


def _with_object(called: Mapping[str, Any]) -> dict[str, Any]:
    arguments = called.get("arguments")
    try:
        found = json.loads(arguments) if isinstance(arguments, str) else None
    except ValueError:
        found = None
    return {**called, "arguments": found} if isinstance(found, dict) else dict(called)


def tools_of(value: Any) -> Tools | None:
    """The functions that a conversation may call, as JSON schemas: a list, or that list as JSON (a cell of a table)."""
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except ValueError:
            raise InputError(f"expected a list of functions, as JSON, found {value!r:.60}") from None
    if not value:
        return None
    if not isinstance(value, list) or not all(isinstance(tool, Mapping) for tool in value):
        raise InputError(f"expected a list of functions, each an object, found {value!r:.60}")
    return [dict(tool) for tool in value]


def training_tokens(
    tokenizer: Tokenizer,
    conversations: Sequence[Sequence[Message]],
    *,
    tools: Sequence[Tools | None] | None = None,
    last_only: bool = False,
) -> list[Tokens | HeadwayError]:
    """The tokens of each conversation, or what is wrong with it. `tools`: the functions that each may call.
    `last_only`: only the last answer is learnt."""
    tools = tools or [None] * len(conversations)
    out: list[Tokens | HeadwayError] = []
    for start in range(0, len(conversations), CHUNK):
        part = slice(start, start + CHUNK)
        out += _chunk(tokenizer, conversations[part], tools[part], last_only=last_only)
    return out


def _chunk(
    tokenizer: Tokenizer,
    conversations: Sequence[Sequence[Message]],
    tools: Sequence[Tools | None],
    *,
    last_only: bool,
) -> list[Tokens | HeadwayError]:
    found: list[Tokens | HeadwayError] = []
    requests: list[dict[str, Any]] = []
    plans: list[tuple[Sequence[Message], list[int], int] | None] = []  # messages, answers, first request
    for messages, functions in zip(conversations, tools, strict=True):
        problem = _problem(messages)
        found.append(problem or InputError("not rendered"))
        if problem is not None:
            plans.append(None)
            continue
        broken = break_controls(tokenizer, messages)
        variables = partial(template_variables, tokenizer, tools=break_controls(tokenizer, functions))
        answers = [i for i, message in enumerate(broken) if message["role"] == "assistant"]
        answers = answers[-1:] if last_only else answers
        plans.append((broken, answers, len(requests)))
        requests.append(variables(broken, answer=False))
        for i in answers:
            requests.append(variables(broken[:i], answer=True))
            requests.append(variables(broken[: i + 1], answer=False))
    texts = render_many(tokenizer.chat_template or DEFAULT_TEMPLATE, requests) if requests else []
    for number, plan in enumerate(plans):
        if plan is not None:
            messages, answers, first = plan
            found[number] = _tokens(tokenizer, messages, answers, texts[first : first + 1 + 2 * len(answers)])
    return found


def _problem(messages: Sequence[Message]) -> InputError | None:
    try:
        check(messages)
    except InputError as error:
        return error
    if not any(message["role"] == "assistant" for message in messages):
        return InputError("the conversation has no message of the assistant to learn from")
    return None


def _tokens(
    tokenizer: Tokenizer, messages: Sequence[Message], answers: Sequence[int], texts: Sequence[str | InputError]
) -> Tokens | HeadwayError:
    for text in texts:
        if isinstance(text, InputError):
            return text
    whole, *prefixes = [str(text) for text in texts]
    learnt = np.zeros(len(whole), dtype=bool)  # by character
    limits = [len(_prompt(before, whole)) for before in prefixes[2::2]] + [len(whole)]
    reasons: list[str] = []
    for i, before, after, limit in zip(answers, prefixes[0::2], prefixes[1::2], limits, strict=True):
        content, controls = messages[i].get("content") or "", control_pattern(tokenizer)
        content = "" if messages[i].get("tool_calls") else content  # the calls may follow it, and are learnt too
        span = _answer_span(whole, before, after, content, limit=limit, controls=controls)
        if isinstance(span, str):
            reasons.append(f"message {i + 1}: {span}")
        else:
            learnt[slice(*span)] = True
    ids, marks = _encode(tokenizer, whole, learnt)
    if not marks.any():
        why = f" ({reasons[0]})" if reasons else ""
        return InputError(f"the chat template leaves no answer of the assistant to learn from{why}")
    return Tokens(ids, marks)


def _answer_span(
    whole: str, before: str, after: str, content: str, *, limit: int, controls: re.Pattern[str]
) -> tuple[int, int] | str:
    """Characters of the whole text, up to `limit`, that an answer has, with the control token after it; or why there
    are none: the template leaves the answer out, or writes what comes before it in another way once more follows."""
    before = _prompt(before, whole)
    if not whole.startswith(before):
        return REWRITTEN
    start, content = len(before), content.strip()
    alone = after.find(content, start) if content else -1
    at = whole.find(content, start, limit) if alone >= 0 else -1
    if at < 0:  # the template changes the content, or writes calls of tools
        start, alone = _past_thought(whole, start, limit), _past_thought(after, start, len(after))
        end = start + _common(whole[start:limit], after[alone:])
        ends = [found.end() for found in controls.finditer(whole, start, end)]
        end = ends[-1] if ends and not whole[ends[-1] : end].strip() else end  # not the space behind the end token
        written = controls.sub("", whole[start:end]).strip()
        return (start, end) if end > start and (written or not content) else DROPPED
    if whole[start:at].strip():  # the template's own text before the answer
        start = at
    end = at + len(content)
    close = controls.search(whole, end, limit)
    if close is not None:
        return start, close.end()
    return start, end + _common(whole[end:limit], after[alone + len(content) :])


def _prompt(before: str, whole: str) -> str:
    """The prompt for an answer as it stands in the whole text: without the thought that it begins for a reasoning
    model, where the answer has none."""
    return before if whole.startswith(before) else PROMPT_THOUGHT.sub("", before)


def _past_thought(text: str, start: int, end: int) -> int:
    """Where the answer begins behind an empty <think></think>, which some templates write before the last one only."""
    thought = EMPTY_THOUGHT.match(text, start, end)
    return start if thought is None else thought.end()


def _common(a: str, b: str) -> int:
    """Length of the common beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _encode(tokenizer: Tokenizer, text: str, learnt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Control tokens of the template are marked, those of messages unbroken again; a token is learnt if its last
    character is."""
    pieces: list[str] = []
    marks: list[np.ndarray] = []
    at = 0
    for found in re.finditer(f"{MARK}|{control_pattern(tokenizer).pattern}", text):
        pieces.append(text[at : found.start()])
        marks.append(learnt[at : found.start()])
        if found[0] != MARK:
            pieces.append(CONTROL + found[0])
            marks.append(np.repeat(learnt[found.start()], len(CONTROL) + len(found[0])))
        at = found.end()
    pieces.append(text[at:])
    marks.append(learnt[at:])
    ids, offsets = tokenizer.encode_controlled_offsets("".join(pieces))
    by_character = np.concatenate(marks)
    chosen = [bool(by_character[end - 1]) if end > start else False for start, end in offsets]
    return np.asarray(ids, dtype=np.int32), np.asarray(chosen, dtype=np.int8)
