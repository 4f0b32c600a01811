"""Next-token scores → sequences: filters, ends, and the search."""

from headway.generation.outputs import FinishedBy, Hypothesis, OnToken, Token
from headway.generation.search import generate
from headway.generation.settings import GenerationSettings
from headway.generation.stop import TextStream

__all__ = ["generate", "GenerationSettings", "Hypothesis", "Token", "OnToken", "FinishedBy", "TextStream"]
