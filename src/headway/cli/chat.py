"""`chat`: a conversation, line by line, at a terminal or through a pipe."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from headway.cli.app import app
from headway.cli.generation_options import generation_options
from headway.cli.inference import note_unfinished
from headway.cli.options import Model, Weights, say
from headway.errors import HeadwayError

HELP = "/reset starts a new conversation, /exit or Ctrl-D leaves, Ctrl-C ends an answer"


@app.command()
@generation_options
def chat(
    model: Model,
    weights: Weights = None,
    system: Annotated[str | None, typer.Option(help="System message: instructions before the conversation.")] = None,
    *,
    generation: dict[str, Any],
) -> None:
    """Talk with MODEL, one line at a time."""
    from headway.bundle import load
    from headway.jobs.chat import Conversation

    note_unfinished(model)
    interactive = sys.stdin.isatty()
    conversation = Conversation(load(model, weights=weights), system=system, notify=note, **generation)
    if conversation.tokenizer.chat_template is None:
        note("this model has no chat template: messages are formatted as lines such as «User: …»")
    if interactive:
        note(HELP)
    while (line := read_line(interactive)) is not None:
        if line in ("/exit", "/quit"):
            break
        if line == "/reset":
            conversation.reset()
            note("new conversation")
        elif line.startswith("/"):
            note(f"{line.split()[0]} is not a command; {HELP}")
        elif line:
            try:
                conversation.say(line, on_text=lambda text: print(text, end="", flush=True))
            except HeadwayError as error:
                if not interactive:
                    raise
                note(f"error: {error}")
            say()


def read_line(interactive: bool) -> str | None:
    """The next line of standard input; None at the end."""
    while True:
        try:
            if interactive:
                return input("> ").strip()
            line = sys.stdin.readline()
            return line.strip() if line else None
        except EOFError:
            return None
        except KeyboardInterrupt:
            if not interactive:
                raise
            note(f"\n{HELP}")


def note(text: str) -> None:
    typer.echo(text, err=True)
