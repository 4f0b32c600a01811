"""When an answer is finished: an end id, a stop string, a satisfied constraint, or the token limit."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headway.generation.filters import FilterState
from headway.generation.outputs import FinishedBy
from headway.generation.settings import GenerationSettings
from headway.generation.text_stream import TextStream, find_stop
from headway.preprocess.text import Tokenizer

CONTEXT = 8  # prompt tokens decoded before the answer: more than one character needs


class StopCriteria:
    """The stop criteria of one request. `prompt` holds the ids that the answer continues; for a model with a source, it
    is empty."""

    def __init__(
        self, settings: GenerationSettings, tokenizer: Tokenizer | None = None, *, prompt: Sequence[int] = ()
    ) -> None:
        self.settings, self.tokenizer = settings, tokenizer
        self.before = text_before(prompt, tokenizer) if tokenizer is not None else []
        self.ends: dict[int, FinishedBy] = dict.fromkeys(settings.stop_ids, "stop")
        self.ends |= dict.fromkeys(settings.eos_ids, "eos")

    def stream(self) -> TextStream | None:
        if self.tokenizer is None:
            return None
        return TextStream(self.tokenizer, stop=self.settings.stop, prefix=self.settings.prefix, before=self.before)

    def text(self, ids: Sequence[int]) -> str | None:
        """Text of a whole answer (given without the ids of its prefix), as a stream returns it piece by piece."""
        stream = self.stream()
        if stream is None:
            return None
        pieces = []
        for i in ids:
            if i in self.ends or stream.stopped:
                break
            pieces.append(stream.push(i))
        return "".join(pieces) + stream.finish()

    def finished(self, ids: Sequence[int], states: Collection[FilterState] = ()) -> FinishedBy | None:
        """Why the answer `ids` is finished, or None. Unless its last id is an end id or completes a stop string, that
        id is pushed to the filters' `states`."""
        by = self.ends.get(ids[-1])
        if by is None and self.settings.stop and self.tokenizer is not None:
            before = [*self.before, *self.settings.prefix]
            text = self.tokenizer.decode([*before, *ids])[len(self.tokenizer.decode(before)) :]
            by = "stop" if find_stop(text, self.settings.stop) is not None else None
        return by or self.finished_by_state(ids[-1], len(ids), states)

    def finished_by_state(self, token: int, length: int, states: Collection[FilterState]) -> FinishedBy | None:
        if states:
            for state in states:
                state.push(token)
            if any(state.complete for state in states):
                return "complete"
        return "length" if length == self.settings.max_new_tokens else None


def text_before(prompt: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """The last tokens of the prompt after its last special token, which the text of the answer continues."""
    last = list(prompt[-CONTEXT:])
    begin = next((at for at in range(len(last), 0, -1) if last[at - 1] in tokenizer.special_ids), 0)
    return last[begin:]
