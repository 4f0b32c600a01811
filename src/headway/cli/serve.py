"""`serve`: models behind one HTTP address."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.app import app
from headway.cli.options import Device, Threads, Weights, note, say, set_threads
from headway.errors import ConfigError

KEY = "HEADWAY_KEY"  # environment variable
INSTALL = "serving needs libraries that are not installed: pip install 'headway[serve]'"


@app.command()
def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", help="Model folders or hub ids; NAME=MODEL gives one a name."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; any but loopback needs a key.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0: a free one, which is printed.", min=0, max=65535)
    ] = 8000,
    key_file: Annotated[
        Path | None,
        typer.Option(help=f"File with one API key per line (or set {KEY}). Every route but /health needs one then."),
    ] = None,
    weights: Weights = None,
    running: Annotated[int, typer.Option(help="Answers that a model generates at a time.", min=1, max=1024)] = 16,
    limit: Annotated[
        int, typer.Option(help="Requests that may wait for a model; further ones get 429.", min=0, max=100_000)
    ] = 64,
    deadline: Annotated[float, typer.Option(help="Seconds that an answer may take.", min=0.1)] = 600.0,
    drain: Annotated[float, typer.Option(help="Seconds for running requests after SIGTERM.", min=0.0)] = 60.0,
    memory: Annotated[
        float | None,
        typer.Option(help="Gigabytes of weights to keep loaded; the least recently used are unloaded.", min=0.001),
    ] = None,
    prefix_cache: Annotated[bool, typer.Option(help="Reuse what earlier prompts had in common.")] = True,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Further name in the Host header, as behind a proxy; repeatable.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="Page of another origin that may send requests; repeatable.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Decoders are run by this process (headway), or by vLLM (vllm), if it is installed.")
    ] = "headway",
    runs: Annotated[
        Path | None,
        typer.Option(help="Folder whose runs the page shows (default: runs, if it exists and others cannot reach it)."),
    ] = None,
    train: Annotated[
        bool | None,
        typer.Option(
            "--train/--no-train",
            help="Whether the page may train: upload data, start, stop and resume (default: only if --host is loopback "
            "and no other host or origin is allowed).",
        ),
    ] = None,
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Serve MODELS over HTTP: OpenAI's API, every task by Hugging Face's inference API, and a page at /."""
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"{INSTALL} ({error.name} is missing)") from None
    if engine not in ("headway", "vllm"):
        raise ConfigError(f"--engine {engine!r} is not one of headway, vllm")
    import logging

    from headway.cli.inference import note_unfinished
    from headway.memory import prepare_for_serving
    from headway.serving.limits import ServerLimits
    from headway.serving.model_table import named
    from headway.serving.runs_table import DEFAULT, run_table
    from headway.serving.server import Server, is_loopback

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    set_threads(threads)
    if engine == "vllm" and not models:
        raise ConfigError("--engine vllm: name a model")
    if engine == "vllm" and device != "cpu":
        raise ConfigError(f"--device {device}: --engine vllm chooses the device itself; leave it out")
    keys, local = read_keys(key_file), is_loopback(host) and not allow_host and not allow_origin
    table = run_table(runs, train=train, local=local, guarded=local or bool(keys)) if engine == "headway" else None
    prepare_for_serving()
    server = Server(
        models or [],
        host=host,
        port=port,
        keys=keys,
        hosts=allow_host or (),
        origins=allow_origin or (),
        limits=ServerLimits(running=running, queue=limit, deadline=deadline, drain=drain),
        memory=None if memory is None else round(memory * 1e9),
        weights=weights,
        device=device,
        prefix_cache=prefix_cache,
        engine=engine,
        runs=table,
    )
    for given in models or []:
        note_unfinished(named(given)[1])
    for entry in server.models:
        say(entry.name if engine == "vllm" else f"{entry.name}  task {entry.task}, {entry.size / 1e6:,.1f} MB")
    if table is not None:
        say(f"runs  {runs or DEFAULT}, training from the page is {'on' if table.train else 'off'}")
    for path, tail in ((key_file, ""), (None if table is None else runs or Path(DEFAULT), "-R ")):
        if path is not None and open_to_others(path):
            note(f"warning: other users of this machine can read {path}: chmod {tail}go= {path}")
    with private_files():
        server.run(ready=lambda: say(f"listening on {server.url}  (stop with Ctrl-C)"))
    note("stopped")


@contextmanager
def private_files() -> Iterator[None]:
    """What this process and those that it starts create is for its user alone: uploads, runs, what they print."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(path: Path) -> bool:
    """Whether others may read a file, or something in a folder."""
    if os.name != "posix" or not path.exists() or not path.stat().st_mode & 0o077:
        return False
    return path.is_file() or any(each.lstat().st_mode & 0o077 for each in path.iterdir())


def read_keys(file: Path | None) -> list[str]:
    """Keys of the file, one per line, and of the environment. A key on the command line would be visible to others."""
    from headway.files import open_file

    keys = [os.environ[KEY]] if os.environ.get(KEY) else []
    if file is not None:
        try:
            with open_file(file) as opened:
                lines = opened.read(1 << 20).decode().split()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--key-file {file}: cannot be read ({error})") from error
        if not lines:
            raise ConfigError(f"--key-file {file}: it has no key")
        keys += lines
    return keys
