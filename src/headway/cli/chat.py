"""`chat`: a conversation, line by line, at a terminal or through a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.app import app
from headway.cli.generation_options import generation_options
from headway.cli.inference import note_unfinished
from headway.cli.options import Device, Model, Threads, Weights, note, say, say_text, set_threads
from headway.errors import HeadwayError, InputError, did_you_mean

if TYPE_CHECKING:
    from headway.jobs.chat import Conversation

COMMANDS = {
    "/help": "this list",
    "/system": "TEXT  another system message; without a text, none",
    "/retry": "another answer to the last message",
    "/undo": "take the last message and its answer back",
    "/save": "FILE  write the conversation as JSON",
    "/reset": "start a new conversation",
    "/exit": "leave, as Ctrl-D does; Ctrl-C ends an answer",
}
HELP = "/help lists the commands, /exit or Ctrl-D leaves, Ctrl-C ends an answer"


@app.command()
@generation_options
def chat(
    model: Model,
    message: Annotated[
        str | None,
        typer.Argument(metavar="[MESSAGE]", help="Answer this message and leave (default: lines of standard input)."),
    ] = None,
    weights: Weights = None,
    device: Device = "cpu",
    threads: Threads = None,
    system: Annotated[str | None, typer.Option(help="System message: instructions before the conversation.")] = None,
    *,
    generation: dict[str, Any],
) -> None:
    """Talk with MODEL, one line at a time."""
    from headway.jobs.chat import Conversation
    from headway.loading import load

    set_threads(threads)
    note_unfinished(model)
    interactive = message is None and sys.stdin.isatty()
    conversation = Conversation(load(model, weights=weights, device=device), system=system, notify=note, **generation)
    if conversation.tokenizer.chat_template is None:
        note("this model has no chat template: messages are formatted as lines such as «User: …»")
    if message is not None:
        conversation.say(message, on_text=show)
        say()
        return
    if interactive:
        note(HELP)
    while (line := read_line(interactive)) is not None and line not in ("/exit", "/quit"):
        try:
            answer(conversation, line)
        except HeadwayError as error:
            if not interactive:
                raise
            note(f"error: {error}")


def answer(conversation: Conversation, line: str) -> None:
    """One line: a message, or a command and what follows it."""
    command, _, rest = line.partition(" ")
    match command if line.startswith("/") else "":
        case "":
            if line:
                conversation.say(line, on_text=show)
                say()
        case "/help":
            for name, meaning in COMMANDS.items():
                note(f"{name} {meaning}")
        case "/system":
            conversation.set_system(rest.strip())
            note("the system message is set" if rest.strip() else "no system message")
        case "/retry":
            conversation.retry(on_text=show)
            say()
        case "/undo":
            note(f"taken back: {conversation.undo()}")
        case "/save":
            if not rest.strip():
                raise InputError("/save needs the name of a file")
            note(f"{conversation.save(rest.strip())} messages saved in {rest.strip()}")
        case "/reset":
            conversation.reset()
            note("new conversation")
        case _:
            note(f"{command} is not a command; {did_you_mean(command, COMMANDS, otherwise=HELP)}")


def show(text: str) -> None:
    say_text(text, end="")


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
            note("")
            note(HELP)
