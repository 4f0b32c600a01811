"""Reads the answers to one request as they are written: their text, where they stand in the grammar,
and whether they have ended."""

from __future__ import annotations

from collections.abc import Sequence

from headway.generation.constraints import Grammar, Guide
from headway.generation.outputs import FinishedBy
from headway.generation.settings import GenerationSettings
from headway.generation.stop import TextStream, ended_by_id, find_stop
from headway.preprocess.text import Tokenizer


class Reader:
    def __init__(
        self,
        settings: GenerationSettings,
        tokenizer: Tokenizer | None,
        grammar: Grammar | None = None,
        *,
        prompt: Sequence[int] = (),
    ) -> None:
        self.settings, self.tokenizer, self.grammar = settings, tokenizer, grammar
        self.before = last_words(prompt, tokenizer) if tokenizer is not None else []

    def stream(self) -> TextStream | None:
        if self.tokenizer is None:
            return None
        return TextStream(self.tokenizer, stop=self.settings.stop, prefix=self.settings.prefix, before=self.before)

    def guide(self) -> Guide | None:
        return None if self.grammar is None else self.grammar.guide(fresh=not self.before)

    def text(self, ids: Sequence[int]) -> str | None:
        """Of a whole answer (without its prefix's ids): what a stream of it would have shown."""
        stream = self.stream()
        if stream is None:
            return None
        pieces = []
        for i in ids:
            if ended_by_id(i, self.settings) or stream.stopped:
                break
            pieces.append(stream.push(i))
        return "".join(pieces) + stream.finish()

    def fits(self, text: str | None) -> bool | None:
        return None if self.grammar is None or text is None else self.grammar.fits(text)

    def ended(self, ids: Sequence[int], guide: Guide | None) -> FinishedBy | None:
        """By what, if it has. `guide` is told of the last token here, unless that ends the answer."""
        by = ended_by_id(ids[-1], self.settings)
        if by is None and self.settings.stop and self.tokenizer is not None:
            before = [*self.before, *self.settings.prefix]
            text = self.tokenizer.decode([*before, *ids])[len(self.tokenizer.decode(before)) :]
            by = "stop" if find_stop(text, self.settings.stop) is not None else None
        if by is None and guide is not None:
            guide.take(ids[-1])
            by = "complete" if guide.complete else None
        return "length" if by is None and len(ids) == self.settings.max_new_tokens else by


NEARBY = 8  # tokens: more than a character takes


def last_words(prompt: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """What an answer goes on from: the prompt's last tokens, back to the last control token, which begins a text."""
    nearby = list(prompt[-NEARBY:])
    last = next((at for at in range(len(nearby), 0, -1) if nearby[at - 1] in tokenizer.special_ids), 0)
    return nearby[last:]
