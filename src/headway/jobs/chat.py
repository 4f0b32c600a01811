"""`chat`: a conversation with a model that writes on from a text, kept inside the model's context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headway.bundle import Bundle
from headway.errors import InputError
from headway.generation import GenerationSettings, Token, generate
from headway.models.config import LanguageHeadConfig
from headway.models.decoder import Decoder
from headway.preprocess.chat import PLAIN_STOPS, chat_ids, turn_ends
from headway.preprocess.text import Tokenizer
from headway.tasks.generate import Generate
from headway.tasks.generation import settings_of

MOST = 512  # tokens of an answer, unless told
NOT_IN_CHAT = (  # a reply is one answer, shown as it is generated, and as long as the context allows
    "beams", "groups", "diversity_penalty", "length_penalty", "early_stopping", "n", "max_length", "min_length",
)  # fmt: skip
LEAST = 32  # tokens that must be left for an answer, unless told


class Conversation:
    """What was said so far. `tell` hears what a person should know of how it is kept."""

    def __init__(
        self, bundle: Bundle, *, system: str | None = None, tell: Callable[[str], None] = print, **options: Any
    ) -> None:
        self.model, self.tokenizer = speaker(bundle)
        self.prefixes = bundle.prefixes
        self.tell = tell
        self.context = self.model.max_context
        self.window = options.get("overflow") == "window"
        self.bos = not isinstance(bundle.task, Generate) or bundle.task.wrapped
        self.first = [] if system is None else [{"role": "system", "content": system}]
        self.messages: list[dict[str, str]] = []
        stops = () if self.tokenizer.chat_template else PLAIN_STOPS
        files = {name: value for name, value in bundle.generation.options.items() if name not in NOT_IN_CHAT}
        defaults = {"temperature": 0.8, "top_p": 0.95, "stop": stops, **files, "eos_ids": ends(bundle, self.tokenizer)}
        self.room = options.pop("max_new_tokens", defaults.pop("max_new_tokens", None))
        self.settings = settings_of({**defaults, **options}, self.tokenizer)
        self.turn = 0

    def reset(self) -> None:
        self.messages = []

    def say(self, text: str, *, on_text: Callable[[str], None] | None = None) -> str:
        """The assistant's answer, heard as it is written. An interrupt ends it there; what was written is kept."""
        asked = [*self.messages, {"role": "user", "content": text}]
        ids, left_out = self._fitted(asked)
        if left_out:
            self.tell(f"the {left_out} oldest messages no longer fit the model's context, and are forgotten")
        heard: list[str] = []

        def hear(token: Token) -> None:
            shown = token.text if heard else token.text.lstrip()
            if shown:
                heard.append(shown)
                if on_text is not None:
                    on_text(shown)

        try:
            settings = self._settings(len(ids))
            generate(self.model, [ids], settings, tokenizer=self.tokenizer, on_token=hear, prefixes=self.prefixes)
        except KeyboardInterrupt:
            self.tell("interrupted")
        answer = "".join(heard).rstrip()
        self.messages = [*asked[left_out:], {"role": "assistant", "content": answer}]
        self.turn += 1
        return answer

    def _fitted(self, asked: list[dict[str, str]]) -> tuple[list[int], int]:
        """(ids, how many of the oldest messages were left out)."""
        left_out = 0
        while True:
            ids = chat_ids(self.tokenizer, [*self.first, *asked[left_out:]], bos=self.bos)
            need = len(ids) + (self.room or LEAST)
            if self.context is None or need <= self.context:
                return ids, left_out
            if not self.window:
                raise InputError(
                    f"the conversation has {len(ids)} tokens, and the model's context of {self.context} leaves no room "
                    f"for an answer of {need - len(ids)}: begin anew (/reset), ask for less (--max-new-tokens), or let "
                    "the oldest be forgotten (--overflow window)"
                )
            if left_out + 2 >= len(asked):
                self.tell("this message alone fills the model's context: only its first words and its end are read")
                return ids, left_out
            left_out += 2

    def _settings(self, length: int) -> GenerationSettings:
        most = self.room or MOST
        if self.context is not None and not self.window:
            most = min(most, self.context - length)
        seed = self.settings.seed + self.turn if isinstance(self.settings.seed, int) else self.settings.seed
        return replace(self.settings, max_new_tokens=most, seed=seed)


def speaker(bundle: Bundle) -> tuple[Decoder, Tokenizer]:
    model = bundle.model
    if not isinstance(model, Decoder) or not isinstance(model.config.head, LanguageHeadConfig):
        raise InputError(f"chat needs a model that goes on with a text (GPT-like), and this is a {bundle.config.shape}")
    return model, bundle.processor.require_tokenizer("chat")


def ends(bundle: Bundle, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Every id that ends a turn: of the tokenizer, of the generation defaults, and of the chat template."""
    found = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
    found += bundle.generation.options.get("eos_ids", ())
    return tuple(dict.fromkeys([*found, *turn_ends(tokenizer)]))
