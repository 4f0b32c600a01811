"""Room: generate. Next-token scores → sequences: filters, ends, and the search."""

from headway.generate.outputs import FinishedBy, Hypothesis, OnToken, Token
from headway.generate.search import generate
from headway.generate.settings import GenerationSettings
from headway.generate.stop import TextStream

__all__ = ["generate", "GenerationSettings", "Hypothesis", "Token", "OnToken", "FinishedBy", "TextStream"]
