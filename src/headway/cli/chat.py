"""`chat`: a conversation, line by line, with a person or through a pipe."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from headway.cli.app import app
from headway.cli.generation_options import generation_options
from headway.cli.inference import note_unfinished
from headway.cli.options import Model, Weights, say
from headway.errors import HeadwayError

HELP = "/reset begins anew, /exit or Ctrl-D leaves, Ctrl-C ends an answer"


@app.command()
@generation_options
def chat(
    model: Model,
    weights: Weights = None,
    system: Annotated[str | None, typer.Option(help="What the model is told before the conversation.")] = None,
    *,
    generation: dict[str, Any],
) -> None:
    """Talk with MODEL, one line at a time."""
    from headway.bundle import load
    from headway.jobs.chat import Conversation

    note_unfinished(model)
    person = sys.stdin.isatty()
    conversation = Conversation(load(model, weights=weights), system=system, tell=note, **generation)
    if conversation.tokenizer.chat_template is None:
        note("this model brings no chat template: it is shown lines such as «User: …», and may not know what they mean")
    if person:
        note(HELP)
    while (line := listen(person)) is not None:
        if line in ("/exit", "/quit"):
            break
        if line == "/reset":
            conversation.reset()
            note("a new conversation")
        elif line.startswith("/"):
            note(f"{line.split()[0]} is not known; {HELP}")
        elif line:
            try:
                conversation.say(line, on_text=lambda text: print(text, end="", flush=True))
            except HeadwayError as error:
                if not person:
                    raise
                note(f"error: {error}")
            say()


def listen(person: bool) -> str | None:
    """The next line; None at the end."""
    while True:
        try:
            if person:
                return input("> ").strip()
            line = sys.stdin.readline()
            return line.strip() if line else None
        except EOFError:
            return None
        except KeyboardInterrupt:
            if not person:
                raise
            note(f"\n{HELP}")


def note(text: str) -> None:
    typer.echo(text, err=True)
