"""`run --complete`: the next words of each input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.cli.options import say_json, say_text
from headway.errors import InputError
from headway.printable import printable

END = "(the text ends)"


def complete_all(bundle: Any, texts: Sequence[str], *, top: int, as_json: bool, options: dict[str, Any]) -> None:
    from headway.jobs.complete import complete

    if options:
        raise InputError(f"--complete generates nothing, so --{next(iter(options)).replace('_', '-')} does not apply")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"--complete takes texts, not {type(text).__name__}")
        words = complete(bundle, text, top=top)
        if as_json:
            found = [
                {"word": word.word, "text": word.text, "probability": round(word.probability, 6)} for word in words
            ]
            say_json({"input": text, "words": found})
            continue
        if len(texts) > 1:
            say_text(("\n" if number else "") + printable(text))
        for word in words:
            say_text(f"{word.probability:7.2%}  {printable(word.word) or END}")
