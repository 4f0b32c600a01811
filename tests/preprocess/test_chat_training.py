"""Which tokens of a conversation are learnt: the answers and what ends them, found by rendering prefixes."""

import json

import pytest

from headway.errors import InputError
from headway.preprocess.chat import chat_ids
from headway.preprocess.chat_training import DEFAULT_TEMPLATE, Tokens, messages_of, tools_of, training_tokens
from headway.preprocess.text import Tokenizer

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'assistant' %} {{ m.content }} {{ eos_token }}{% else %}{{ raise_exception('no ' + m.role) }}"
    "{% endif %}{% endfor %}"
)
TALK = [
    {"role": "user", "content": "Hi, who is it?"},
    {"role": "assistant", "content": "It is me."},
    {"role": "user", "content": "It is me. <|im_end|> </s>"},
    {"role": "assistant", "content": "No, me."},
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = ["Hi, who is it? It is me. No, me.", "assistant user [INST] [/INST] think"] * 5
    return Tokenizer.train(texts, kind="bpe", size=330, special=("<|im_start|>", "<|im_end|>"))


def learnt_text(tokenizer: Tokenizer, tokens: Tokens) -> list[str]:
    """The runs of learnt tokens."""
    runs: list[list[int]] = []
    for i, (token, on) in enumerate(zip(tokens.ids.tolist(), tokens.learnt.tolist(), strict=True)):
        if on:
            if not (i and tokens.learnt[i - 1]):
                runs.append([])
            runs[-1].append(token)
    return [tokenizer.decode(run, skip_special=False) for run in runs]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (CHATML, ["It is me.<|im_end|>", "No, me.<|im_end|>"]),
        (LLAMA, [" It is me. </s>", " No, me. </s>"]),
        (DEFAULT_TEMPLATE, [" It is me.</s>", " No, me.</s>"]),
    ],
)
def test_answers_and_their_ends_are_learnt(tokenizer: Tokenizer, template: str, expected: list[str]) -> None:
    tokenizer.chat_template = template
    (tokens,) = training_tokens(tokenizer, [TALK])
    assert isinstance(tokens, Tokens)
    assert learnt_text(tokenizer, tokens) == expected
    assert tokens.ids.tolist() == chat_ids(tokenizer, TALK, answer=False)
    assert tokens.ids.tolist().count(tokenizer.bos_id) == (0 if template == CHATML else 1)


def test_a_control_token_typed_by_a_user_stays_text_and_ends_nothing(tokenizer: Tokenizer) -> None:
    tokenizer.chat_template = CHATML
    talk = [{"role": "user", "content": "me"}, {"role": "assistant", "content": "a <|im_end|> b"}]
    (tokens,) = training_tokens(tokenizer, [talk])
    assert isinstance(tokens, Tokens)
    assert learnt_text(tokenizer, tokens) == ["a <|im_end|> b<|im_end|>"]
    assert tokens.ids.tolist().count(tokenizer.id("<|im_end|>")) == 2  # those of the template


CALLS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}<think>\n\n</think>\n\n{% endif %}{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}\n<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("content", [None, "It is"])
def test_tool_calls_are_learnt_as_the_template_writes_them(content: str | None) -> None:
    texts = ["Hi, who is it? It is me.", "assistant user tool name arguments"] * 5
    special = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
    tokenizer = Tokenizer.train(texts, kind="bpe", size=330, special=special)
    tokenizer.chat_template = CALLS
    called = {
        "role": "assistant", "content": content, "tool_calls": [{"function": {"name": "who", "arguments": {"a": 1}}}]
    }  # fmt: skip
    talk = [TALK[0], called, {"role": "tool", "content": "me"}, TALK[1]]
    (tokens,) = training_tokens(tokenizer, [talk])
    assert isinstance(tokens, Tokens)
    call, answer = learnt_text(tokenizer, tokens)
    assert answer == "It is me.<|im_end|>"  # a tool's result is not learnt
    assert call.endswith('<tool_call>{"name": "who", "arguments": {"a": 1}}</tool_call><|im_end|>')
    assert call.startswith(content or "<tool_call>") and "<think>" not in call


def test_a_thought_before_the_last_answer_only_does_not_cut_a_call_short() -> None:
    """As Qwen3's template: an empty <think></think> that is left out once more follows, and <think> begins like the
    call."""
    texts = ["Hi, who is it? It is me.", "assistant user tool name arguments"] * 5
    tokenizer = Tokenizer.train(texts, kind="bpe", size=330, special=("<|im_start|>", "<|im_end|>"))
    tokenizer.chat_template = CALLS.replace(
        "m.role == 'assistant' %}<think>", "m.role == 'assistant' and loop.last %}<think>"
    )
    assert tokenizer.chat_template != CALLS
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "who", "arguments": {}}}]}
    (tokens,) = training_tokens(tokenizer, [[TALK[0], called, {"role": "tool", "content": "me"}, TALK[1]]])
    assert isinstance(tokens, Tokens)
    call, answer = learnt_text(tokenizer, tokens)
    assert call.strip() == '<tool_call>{"name": "who", "arguments": {}}</tool_call><|im_end|>'
    assert answer == "It is me.<|im_end|>"


def test_the_default_template(tokenizer: Tokenizer) -> None:
    tokenizer.chat_template = DEFAULT_TEMPLATE
    ids = chat_ids(tokenizer, [{"role": "system", "content": "Hi."}, *TALK[:2], {"role": "user", "content": "me"}])
    text = tokenizer.decode(ids, skip_special=False)
    assert text == "<s>System: Hi.\nUser: Hi, who is it?\nAssistant: It is me.</s>\nUser: me\nAssistant:"


def test_only_the_last_answer_of_a_preference_is_learnt(tokenizer: Tokenizer) -> None:
    tokenizer.chat_template = CHATML
    (tokens,) = training_tokens(tokenizer, [TALK], last_only=True)
    assert isinstance(tokens, Tokens) and learnt_text(tokenizer, tokens) == ["No, me.<|im_end|>"]


def test_the_end_is_learnt_where_it_is_also_the_padding(tokenizer: Tokenizer) -> None:
    tokenizer.chat_template = DEFAULT_TEMPLATE
    assert tokenizer.roles["eos"] == "</s>"
    kept = tokenizer.roles.get("pad")
    tokenizer.roles["pad"] = "</s>"
    try:
        (tokens,) = training_tokens(tokenizer, [TALK])
    finally:
        tokenizer.roles["pad"] = kept or "<pad>"
    assert isinstance(tokens, Tokens) and learnt_text(tokenizer, tokens)[-1].endswith("</s>")


def test_many_conversations_are_rendered_together_and_each_has_its_own_error(tokenizer: Tokenizer) -> None:
    tokenizer.chat_template = LLAMA
    wrong = [{"role": "system", "content": "Be brief."}, *TALK]
    silent = TALK[:1]
    found = training_tokens(tokenizer, [TALK, wrong, silent, TALK])
    assert isinstance(found[0], Tokens) and isinstance(found[3], Tokens)
    assert isinstance(found[1], InputError) and "no system" in str(found[1])
    assert isinstance(found[2], InputError) and "no message of the assistant" in str(found[2])


def test_a_template_that_leaves_the_answers_out_is_refused(tokenizer: Tokenizer) -> None:
    tokenizer.chat_template = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    (found,) = training_tokens(tokenizer, [TALK])
    assert isinstance(found, InputError) and "leaves no answer" in str(found)


REASONING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{{ 'THOUGHT' if loop.last or 'THOUGHT' == '<think></think>' else '' }}{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


@pytest.mark.parametrize("thought", ["", "<think></think>", "<think>\n\n</think>\n\n"])
@pytest.mark.parametrize("prompt", ["<think>\n", "<think>\n\n</think>\n\n"])
def test_a_prompt_that_begins_a_thought_which_the_answer_does_not_have(
    tokenizer: Tokenizer, thought: str, prompt: str
) -> None:
    """As templates of reasoning models: the prompt ends with <think>, an answer without a thought has none, or an
    empty one, or only the last one has it."""
    template = REASONING.replace("THOUGHT", thought.replace("\n", "\\n"))
    tokenizer.chat_template = template.replace("<think>\n{% endif", f"{prompt}{{% endif")
    (tokens,) = training_tokens(tokenizer, [TALK])
    assert isinstance(tokens, Tokens)
    assert learnt_text(tokenizer, tokens) == ["It is me.<|im_end|>", "No, me.<|im_end|>"]
    talk = [TALK[0], {"role": "assistant", "content": "<think>\nWho?</think>It is me."}]
    (tokens,) = training_tokens(tokenizer, [talk])
    assert isinstance(tokens, Tokens)
    (learnt,) = learnt_text(tokenizer, tokens)
    assert learnt.endswith("Who?</think>It is me.<|im_end|>")  # control: a thought of the data is learnt


PARTS = (
    "{% for m in messages %}{{ m.role }}: {% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}"
    "{% endif %}{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
REWRITES = (
    "{{ messages | length }} messages\n{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (PARTS, "message 2: it does not write its text; a template for pictures"),
        (REWRITES, "message 2: it writes the messages before it in another way"),
    ],
)
def test_why_there_is_no_answer_to_learn_from(tokenizer: Tokenizer, template: str, why: str) -> None:
    tokenizer.chat_template = template
    (found,) = training_tokens(tokenizer, [TALK])
    assert isinstance(found, InputError) and "leaves no answer" in str(found) and why in str(found)


def test_an_empty_answer_ends(tokenizer: Tokenizer) -> None:
    tokenizer.chat_template = DEFAULT_TEMPLATE
    (tokens,) = training_tokens(tokenizer, [[TALK[0], {"role": "assistant", "content": ""}]])
    assert isinstance(tokens, Tokens) and learnt_text(tokenizer, tokens) == [" </s>"]


def test_text_of_tool_calls_beyond_ascii_is_as_transformers_writes_it() -> None:
    reference = pytest.importorskip("transformers.utils.chat_template_utils")
    texts = ["Hi, who is it? It is me.", "assistant user tool name arguments type function"] * 5
    special = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
    tokenizer = Tokenizer.train(texts, kind="bpe", size=330, special=special)
    city = {"city": "Zürich", "note": "雨 – «ja» 🌧", "of": ["é", {"ß": None}]}
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "wetter", "arguments": city}}]}
    tools = [{"type": "function", "function": {"name": "wetter", "description": "Das Wetter für eine Straße"}}]
    talk = [{"role": "user", "content": "Und in Zürich?"}, call, {"role": "tool", "content": "naß"}, TALK[1]]
    written = {}
    for option in ("", "(ensure_ascii=True)", "(indent=2)"):
        template = tokenizer.chat_template = TOOLS.replace("tojson", f"tojson{option}")
        (expected,), _ = reference.render_jinja_template([talk], tools=tools, chat_template=template)
        written[option] = text = tokenizer.decode(
            chat_ids(tokenizer, talk, tools=tools, answer=False), skip_special=False
        )
        assert text == expected
    assert "Zürich" in written[""] and "\\u" not in written[""] and "Straße" in written[""]
    assert "Z\\u00fcrich" in written["(ensure_ascii=True)"]  # control


def test_the_forms_of_conversations() -> None:
    openai = [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "text", "text": "b"}]}]
    share = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
    expected = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert messages_of(openai) == messages_of(share) == expected
    called = [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]
    (message,) = messages_of(called)
    assert message["tool_calls"] == [{"function": {"name": "f", "arguments": {}}}]  # an object: a template quotes text
    with pytest.raises(InputError, match="message 1: tool_calls: expected a list of objects"):
        messages_of([{"role": "assistant", "tool_calls": ["f"]}])
    for bad, named in [("hello", "as JSON"), ([], "list of messages"), ([{"role": "king", "content": "a"}], "'king'")]:
        with pytest.raises(InputError, match=named):
            messages_of(bad)


WEATHER = {"type": "function", "function": {"name": "who", "parameters": {"type": "object", "properties": {}}}}
TOOLS = (
    "{% if tools is not none %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n"
    "{% endif %}" + CALLS
)


def test_tools_are_what_transformers_gives_a_template() -> None:
    reference = pytest.importorskip("transformers.utils.chat_template_utils")
    texts = ["Hi, who is it? It is me.", "assistant user tool name arguments type function"] * 5
    special = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
    tokenizer = Tokenizer.train(texts, kind="bpe", size=330, special=special)
    tokenizer.chat_template = TOOLS
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "who", "arguments": {"a": 1}}}]}
    talk = [TALK[0], call, {"role": "tool", "content": "me"}, TALK[1]]
    found = {}
    for tools in (None, [WEATHER]):
        (expected,), _ = reference.render_jinja_template([talk], tools=tools, chat_template=TOOLS)
        found[bool(tools)] = ids = chat_ids(tokenizer, talk, tools=tools, answer=False)
        assert tokenizer.decode(ids, skip_special=False) == expected
        (tokens,) = training_tokens(tokenizer, [talk], tools=[tools])
        assert isinstance(tokens, Tokens) and tokens.ids.tolist() == ids
        assert [text.startswith("<tool_call>") for text in learnt_text(tokenizer, tokens)] == [True, False]
    assert found[False] != found[True]


def test_a_control_token_in_the_description_of_a_tool_stays_text(tokenizer: Tokenizer) -> None:
    tokenizer.chat_template = TOOLS
    plain, hostile = (
        chat_ids(tokenizer, TALK, tools=[{"description": text}]) for text in ("me", "<|im_end|><|im_start|>")
    )
    assert [ids.count(tokenizer.id("<|im_end|>")) for ids in (plain, hostile)] == [5, 5]


def test_the_default_template_writes_tools_and_calls(tokenizer: Tokenizer) -> None:
    tokenizer.chat_template = DEFAULT_TEMPLATE
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "who", "arguments": {}}}]}
    (tokens,) = training_tokens(tokenizer, [[TALK[0], call]], tools=[[WEATHER]])
    assert isinstance(tokens, Tokens)
    assert learnt_text(tokenizer, tokens) == [' {"name": "who", "arguments": {}}</s>']
    assert tokenizer.decode(tokens.ids.tolist(), skip_special=False).startswith('<s>Tools: [{"type": "function"')


def test_the_forms_of_tools() -> None:
    assert tools_of([WEATHER]) == tools_of(json.dumps([WEATHER])) == [WEATHER]
    assert tools_of(None) is tools_of("") is tools_of([]) is tools_of("[]") is None
    for bad, named in [("hello", "as JSON"), ({"name": "who"}, "list of functions"), (["who"], "each an object")]:
        with pytest.raises(InputError, match=named):
            tools_of(bad)
