"""When an answer ends, and which of its text is certain: never half a character, never the beginning of
what may turn out to be a stop text."""

from __future__ import annotations

from collections.abc import Sequence

from headway.generation.outputs import FinishedBy
from headway.generation.settings import GenerationSettings
from headway.preprocess.text import StreamDecoder, Tokenizer


def ended_by_id(token: int, settings: GenerationSettings) -> FinishedBy | None:
    if token in settings.eos_ids:
        return "eos"
    return "stop" if token in settings.stop_ids else None


def find_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the stop text begins that is complete first; of two that end together, the longer."""
    found = [(at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0]
    return min(found)[1] if found else None


def withheld(text: str, stops: Sequence[str]) -> int:
    """How many characters at the end may be the beginning of a stop text."""
    longest = min(len(text), max((len(stop) for stop in stops), default=1) - 1)
    return next((n for n in range(longest, 0, -1) if any(stop.startswith(text[-n:]) for stop in stops)), 0)


class TextStream:
    """Ids in, certain text out. `stopped` once a stop text is complete: what was pushed before it is all there is.

    The prefix is shown with the first text, and is not searched for stop texts. What stands `before` is not shown, but
    says whether the text begins with a space: some tokenizers drop the one at the beginning of all they decode.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop: Sequence[str] = (),
        prefix: Sequence[int] = (),
        before: Sequence[int] = (),
    ) -> None:
        self._decoder = StreamDecoder(tokenizer)
        for i in before:
            self._decoder.push(i)
        self._stop = stop
        self._ready = "".join(self._decoder.push(i) for i in prefix)
        self._held = ""
        self.stopped = False

    def push(self, index: int) -> str:
        return self._release(self._decoder.push(index))

    def finish(self) -> str:
        """All the rest, when nothing more will come."""
        return "" if self.stopped else self._release(self._decoder.finish(), last=True)

    def _release(self, fresh: str, *, last: bool = False) -> str:
        text = self._held + fresh
        at = find_stop(text, self._stop)
        self.stopped = at is not None
        if at is None:
            at = len(text) if last else len(text) - withheld(text, self._stop)
        self._held = "" if self.stopped else text[at:]
        ready, self._ready = self._ready, ""
        return ready + text[:at]
