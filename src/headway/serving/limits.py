"""Bounds of the server, each with the fault that it is for. The command's options set some of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerLimits:
    # scheduling
    running: int = 16  # answers that a model generates at a time
    queue: int = 64  # requests that wait for a model; further ones get 429
    deadline: float = 600.0  # seconds from the arrival of a request to the end of its answer
    drain: float = 60.0  # seconds that requests have to finish after SIGTERM
    batch: int = 64  # inputs of a classic task in one batch; a request with more has several, in turns with others
    batch_characters: int = 2**16  # of the texts in it, unless one has more

    # connections
    connections: int = 512  # requests at a time, and connections without one; probes are answered beyond it
    client_connections: int = 256  # of one client (its key, else its address)
    idle_connections: int = 64  # of one address, that wait for a request; the one that has waited longest is closed
    header_seconds: float = 10.0  # for the head of a request (slow-loris)
    header_bytes: int = 16 * 1024
    body_seconds: float = 60.0
    json_bytes: int = 8 * 2**20
    media_bytes: int = 32 * 2**20  # pictures and sound
    bodies_bytes: int = 256 * 2**20  # of all requests together, counted while they arrive
    client_bodies_bytes: int = 96 * 2**20  # of one client
    small_body_bytes: int = 64 * 2**10  # a body that is admitted beside any number of large ones
    part_bytes: int = 256  # of a body that arrives in parts (chunks), on average, after the first 1,000
    keep_alive: int = 15  # seconds that an idle connection stays open

    # content
    depth: int = 64  # of JSON
    values: int = 200_000  # of JSON, counted before it is parsed
    keys: int = 1024  # of one JSON object
    digits: int = 400  # of a number
    characters: int = 2**20  # of one text
    context_characters: int = 2**17  # of one text, if the model's context is not longer: 64 characters a token
    preparing: int = 2  # large bodies, schemas and expressions that are read at a time; of a client, one
    inputs: int = 1024  # in one request
    choices: int = 16  # n
    new_tokens: int = 32_768
    pixels: int = 40_000_000  # of a decoded picture
    audio_seconds: float = 4 * 3600.0
    explanations: int = 32  # requests whose page can still be opened
