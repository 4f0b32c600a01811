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
        "transcribe", "Speech: in its own language, or translated into English.", one_of("transcribe", "translate"),
        commands=RUN,
    )  # fmt: skip
    words: bool = option(False, "Speech: also when each word is spoken.", FLAG, commands=RUN)
    format: Literal["txt", "srt", "vtt", "tsv", "json"] = option(
        "txt", "Form of a transcript.", one_of("txt", "srt", "vtt", "tsv", "json"), commands=RUN
    )
