"""Text of an answer as its tokens arrive: only whole characters, and nothing that may be the beginning of a stop
string."""

from __future__ import annotations

from collections.abc import Sequence

from headway.preprocess.text import StreamDecoder, Tokenizer


def find_stop(text: str, stops: Sequence[str]) -> int | None:
    """Index at which the stop string begins that is completed first; of two that end together, the longer one."""
    found = [(at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0]
    return min(found)[1] if found else None


def withheld(text: str, stops: Sequence[str]) -> int:
    """Number of characters at the end of `text` that may be the beginning of a stop string."""
    longest = min(len(text), max((len(stop) for stop in stops), default=1) - 1)
    return next((n for n in range(longest, 0, -1) if any(stop.startswith(text[-n:]) for stop in stops)), 0)


class TextStream:
    """Decodes ids one at a time and returns the text that is final.

    `stopped` becomes True when a stop string is complete; the text before it has then been returned. The text of
    `prefix` is returned with the first piece and is not searched for stop strings. `before` holds the ids that precede
    the answer: their text is not returned, but it decides whether the answer begins with a space (some tokenizers drop
    the first space of everything they decode).
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
        self._prefix_text = "".join(self._decoder.push(i) for i in prefix)
        self._held = ""
        self.stopped = False

    def push(self, index: int) -> str:
        return self._release(self._decoder.push(index))

    def finish(self) -> str:
        """Returns the remaining text at the end of the answer."""
        return "" if self.stopped else self._release(self._decoder.finish(), last=True)

    def _release(self, new: str, *, last: bool = False) -> str:
        text = self._held + new
        at = find_stop(text, self._stop)
        self.stopped = at is not None
        if at is None:
            at = len(text) if last else len(text) - withheld(text, self._stop)
        self._held = "" if self.stopped else text[at:]
        prefix, self._prefix_text = self._prefix_text, ""
        return prefix + text[:at]
