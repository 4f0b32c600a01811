"""How speech is turned into text: what a person chooses, each declared once with its help and its check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headway.generation.option import one_of, option, optional, text

RUN = ("run",)
FLAG = one_of(True, False)


@dataclass(frozen=True)
class SpeechSettings:
    language: str | None = option(
        None, "Language of a recording, such as de or German (default: detected).", optional(text), commands=RUN
    )
    task: Literal["transcribe", "translate"] = option(
        "transcribe", "Transcribe speech in its own language, or translate it into English.",
        one_of("transcribe", "translate"), commands=RUN,
    )  # fmt: skip
    words: bool = option(False, "Add the time at which each word is spoken.", FLAG, commands=RUN)
    format: Literal["txt", "srt", "vtt", "tsv", "json"] = option(
        "txt", "Format of a transcript.", one_of("txt", "srt", "vtt", "tsv", "json"), commands=RUN
    )
