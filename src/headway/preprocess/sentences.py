"""Text → sentences, by punctuation and line ends."""

from __future__ import annotations

import re

# Not after abbreviations and initials.
END = re.compile(
    r"\n+|(?<=[.?!…])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bal\.)(?<!\bvs\.)(?<!\bcf\.)(?<!\bFig\.)(?<!\bEq\.)(?<!\bDr\.)"
    r"(?<!\bMr\.)(?<!\bMrs\.)(?<!\bSt\.)(?<!\b[A-Z]\.)\s+|(?<=[。？！])"
)


def split_sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in END.split(text) if sentence.strip()]
