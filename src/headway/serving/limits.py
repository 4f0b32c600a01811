"""Bounds of the server, each with the fault that it is for. The command's options set some of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    # scheduling
    running: int = 16  # answers that a model generates at a time
    queue: int = 64  # requests that wait for a model; further ones get 429
    deadline: float = 600.0  # seconds from the arrival of a request to the end of its answer
    drain: float = 60.0  # seconds that requests have to finish after SIGTERM
    batch: int = 64  # inputs of a classic task in one batch

    # connections
    connections: int = 512
    header_seconds: float = 10.0  # for the head of a request (slow-loris)
    header_bytes: int = 16 * 1024
    body_seconds: float = 60.0
    json_bytes: int = 8 * 2**20
    media_bytes: int = 32 * 2**20  # pictures and sound
    bodies_bytes: int = 256 * 2**20  # of all requests together
    keep_alive: int = 15  # seconds that an idle connection stays open

    # content
    depth: int = 64  # of JSON
    inputs: int = 1024  # in one request
    choices: int = 16  # n
    new_tokens: int = 32_768
    pixels: int = 40_000_000  # of a decoded picture
    audio_seconds: float = 4 * 3600.0
    explanations: int = 32  # requests whose page can still be opened
