"""Compiles a constraint as a trial. Run in a separate process (headway.limited_process), because a schema of a few
lines can take minutes and gigabytes to compile, which llguidance cannot interrupt.

Uses a tokenizer of single bytes: the time to compile does not depend on the vocabulary."""

from typing import Any, cast

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

END = 256


class Bytes:
    """The interface that llguidance expects of a tokenizer."""

    is_tokenizer_wrapper = True
    bos_token_id = None
    eos_token_id = END
    special_token_ids = [END]
    tokens = [*(bytes([byte]) for byte in range(256)), b"<end>"]

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


def answer(request: dict[str, Any]) -> dict[str, str]:
    """Compiles the grammar and computes which bytes may come first."""
    tokenizer = LLTokenizer(cast(Any, Bytes()), slices=[])
    matcher = LLMatcher(tokenizer, request["grammar"], log_level=0, limits=LLParserLimits(**request["limits"]))
    allowed = b"" if matcher.is_error() else matcher.compute_bitmask()
    error = matcher.get_error()
    if "NoExtensionBias" in error or not (error or any(allowed)):
        error = "no text satisfies it"
    return {"error": error} if error else {}
