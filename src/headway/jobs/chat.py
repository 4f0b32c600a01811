"""`chat`: a conversation with a decoder, kept within the model's context."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from headway.bundle import Bundle
from headway.checkpoints import save_text
from headway.errors import InputError, with_article
from headway.generation import GenerationSettings, Token, generate
from headway.models.protocol import Model
from headway.preprocess.chat import PLAIN_STOPS, chat_ids, turn_ends
from headway.preprocess.text import Tokenizer
from headway.tasks.generation import settings_from

MAX_ANSWER = 512  # default of max_new_tokens
MIN_ANSWER = 32  # tokens that must be left for an answer unless max_new_tokens is given
NOT_IN_CHAT = (  # a reply is one answer, streamed, and as long as the context allows
    "beams", "groups", "diversity_penalty", "length_penalty", "early_stopping", "n", "max_length", "min_length",
)  # fmt: skip


class Conversation:
    """The messages so far. `notify` receives notes for the user: dropped messages, interrupts."""

    def __init__(
        self, bundle: Bundle, *, system: str | None = None, notify: Callable[[str], None] = print, **options: Any
    ) -> None:
        self.model, self.tokenizer = chat_model(bundle)
        self.prefixes = bundle.prefixes
        self.notify = notify
        self.context = self.model.max_context
        self.window = options.get("overflow") == "window"
        self.bos = bundle.find_task().input_kind.special_tokens
        self.set_system(system)
        self.messages: list[dict[str, str]] = []
        stops = () if self.tokenizer.chat_template else PLAIN_STOPS
        files = {name: value for name, value in bundle.generation.options.items() if name not in NOT_IN_CHAT}
        ends = end_ids(bundle, self.tokenizer)
        defaults = {"temperature": 0.8, "top_p": 0.95, "stop": stops, **files, "eos_ids": ends}
        self.max_new_tokens = options.pop("max_new_tokens", defaults.pop("max_new_tokens", None))
        self.settings = settings_from({**defaults, **options}, self.tokenizer)
        self.turn = 0

    def set_system(self, text: str | None) -> None:
        """The system message, from the next answer on; None or an empty text: without one."""
        self.system = [{"role": "system", "content": text}] if text else []

    def reset(self) -> None:
        self.messages = []

    def undo(self) -> str:
        """Removes the last message of the user, which is returned, with its answer."""
        if not self.messages:
            raise InputError("there is no message to take back")
        *self.messages, question, _ = self.messages
        return question["content"]

    def retry(self, *, on_text: Callable[[str], None] | None = None) -> str:
        """Another answer to the last message."""
        return self.say(self.undo(), on_text=on_text)

    def save(self, path: str | Path) -> int:
        """Writes the conversation as a line of the file that `headway train chat` reads. Returns its messages."""
        messages = [*self.system, *self.messages]
        save_text(Path(path), json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
        return len(messages)

    def say(self, text: str, *, on_text: Callable[[str], None] | None = None) -> str:
        """The assistant's answer; `on_text` receives it in pieces. An interrupt ends it; the pieces so far are kept."""
        messages = [*self.messages, {"role": "user", "content": text}]
        ids, dropped = self._fit(messages)
        if dropped:
            self.notify(f"the {dropped} oldest messages no longer fit the model's context and are dropped")
        pieces: list[str] = []

        def receive(token: Token) -> None:
            shown = token.text if pieces else token.text.lstrip()
            if shown:
                pieces.append(shown)
                if on_text is not None:
                    on_text(shown)

        try:
            settings = self._settings(len(ids))
            generate(
                cast(Any, self.model),
                [ids],
                settings,
                tokenizer=self.tokenizer,
                on_token=receive,
                prefixes=self.prefixes,
            )
        except KeyboardInterrupt:
            self.notify("interrupted")
        answer = "".join(pieces).rstrip()
        self.messages = [*messages[dropped:], {"role": "assistant", "content": answer}]
        self.turn += 1
        return answer

    def _fit(self, messages: list[dict[str, str]]) -> tuple[list[int], int]:
        """(token ids, how many of the oldest messages were dropped)."""
        dropped = 0
        while True:
            ids = chat_ids(self.tokenizer, [*self.system, *messages[dropped:]], bos=self.bos)
            need = len(ids) + (self.max_new_tokens or MIN_ANSWER)
            if self.context is None or need <= self.context:
                return ids, dropped
            if not self.window:
                raise InputError(
                    f"the conversation has {len(ids)} tokens, and the model's context of {self.context} leaves no room "
                    f"for an answer of {need - len(ids)}: start again (/reset), lower --max-new-tokens, or drop the "
                    "oldest messages (--overflow window)"
                )
            if dropped + 2 >= len(messages):
                self.notify("this message alone fills the model's context: only its first tokens and its end are read")
                return ids, dropped
            dropped += 2

    def _settings(self, length: int) -> GenerationSettings:
        limit = self.max_new_tokens or MAX_ANSWER
        if self.context is not None and not self.window:
            limit = min(limit, self.context - length)
        seed = self.settings.seed + self.turn if isinstance(self.settings.seed, int) else self.settings.seed
        return replace(self.settings, max_new_tokens=limit, seed=seed)


def chat_model(bundle: Bundle) -> tuple[Model, Tokenizer]:
    model = bundle.model
    if not model.generates or model.reads_source:
        kind = with_article(model.shape)
        raise InputError(f"chat needs a decoder with a language-model head (GPT-like); this model is {kind}")
    return model, bundle.processor.require_tokenizer("chat")


def end_ids(bundle: Bundle, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Every id that ends a turn: of the tokenizer, of the generation defaults, and of the chat template."""
    found = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
    found += bundle.generation.options.get("eos_ids", ())
    return tuple(dict.fromkeys([*found, *turn_ends(tokenizer)]))
