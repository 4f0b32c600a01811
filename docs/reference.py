"""The reference pages, generated from the code: what every command prints with --help, every setting with its default
and the comment beside it, and the docstrings of the Python package.

A hook of mkdocs (`make docs`). `pages()` needs no mkdocs: a test calls it."""

from __future__ import annotations

import dataclasses
import inspect
import io
import re
import tokenize
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar, get_origin

WIDTH = 100  # of a help text


def pages() -> dict[str, str]:
    """The Markdown of each page, by its path below docs."""
    return {
        "reference/commands.md": commands(),
        "reference/settings.md": settings(),
        "reference/python.md": python(),
    }


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs with the files of the site."""
    from mkdocs.structure.files import File

    for path, content in pages().items():
        files.append(File.generated(config, path, content=content))
    return files


# ---------------------------------------------------------------------------------------- commands


def commands() -> str:
    import typer

    from headway.cli import app

    group: Any = typer.main.get_command(app)
    top = group.context_class(group, info_name="headway", terminal_width=WIDTH, max_content_width=WIDTH)
    parts = ["# Commands", "What `headway COMMAND --help` prints.", "[Tutorials](../index.md#tasks) show them at work."]
    for name in group.list_commands(top):
        command = group.get_command(top, name)
        context = command.context_class(command, info_name=name, parent=top)
        parts.append(f"## {name}\n\n```text\n{command.get_help(context).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------------------------------- settings


def settings() -> str:
    from headway.generation.option import option_of
    from headway.generation.settings import GenerationSettings
    from headway.models.recipes import Size
    from headway.serving.limits import ServerLimits
    from headway.tasks import TASKS, find
    from headway.tasks.extract_summary import OPTIONS
    from headway.tasks.task import PREPROCESSING
    from headway.training.settings import Settings

    parts = [
        "# Settings",
        "`--set KEY=VALUE` sets any of the first three kinds, and `--config FILE` reads them from JSON or TOML. The"
        " prefix `train.`, `model.` or `task.` is needed only where a name fits several. A recipe, a task or the data"
        " may choose another default: `headway train TASK --dry-run` prints all of them.",
        "## Training (`train.`)\n\n" + table(Settings),
        "## Size of a model from scratch (`model.`)\n\n" + table(Size),
        "## Options of the tasks (`task.`)",
    ]
    for name in TASKS:
        parts.append(f"### {name}\n\n" + table(find(name), leave_out=PREPROCESSING))
    extract = find("summarize").variant({"method": "extract"})
    rows = table(extract, leave_out=tuple({each.name for each in dataclasses.fields(extract)} - {*OPTIONS}))
    parts.append("### summarize with `method=extract`\n\n" + rows)
    generation = table(GenerationSettings, meaning=lambda field, _: option_of(field).help)
    parts += [
        "## Text generation\n\nOptions of `run`, `chat` and `evaluate`, arguments in Python, fields of a request.\n\n"
        + generation,
        "## Limits of the server\n\n" + table(ServerLimits),
    ]
    return "\n\n".join(parts) + "\n"


Meaning = Callable[[dataclasses.Field[Any], dict[str, str]], str]


def table(
    kind: type,
    *,
    leave_out: tuple[str, ...] = (),
    meaning: Meaning = lambda field, comments: comments.get(field.name, ""),
) -> str:
    comments = field_comments(kind)
    rows = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for field in dataclasses.fields(kind):
        if field.name not in leave_out and get_origin(field.type) is not ClassVar:
            cells = (f"`{field.name}`", f"`{type_name(field.type)}`", default_of(field), meaning(field, comments))
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def type_name(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def default_of(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{field.default!r}`"
    if field.default_factory is not dataclasses.MISSING:
        return f"`{field.default_factory()!r}`"
    return "from the data"


def field_comments(kind: type) -> dict[str, str]:
    """The comment at the end of the line that declares a field, of the class and those it inherits from."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        name = ""
        for token in tokenize.generate_tokens(io.StringIO(inspect.getsource(base)).readline):
            declared = re.match(r"    (\w+):", token.line)
            if token.type == tokenize.NAME and token.start[1] == 4:
                name = token.string if declared and declared[1] == token.string else ""
            elif token.type == tokenize.COMMENT and name and token.start[1] > 4:
                found.setdefault(name, "")
                found[name] = token.string.lstrip("# ")
    return found


# ---------------------------------------------------------------------------------------- Python


def python() -> str:
    headway = import_module("headway")
    parts = ["# Python", "`import headway` imports torch only when something is used that needs it."]
    for name in headway.__all__:
        value = getattr(headway, name)
        if inspect.isclass(value):
            parts.append(described(f"headway.{name}", value))
            parts += [described(f"headway.{name}.{method}", found) for method, found in methods(value)]
        elif inspect.ismodule(value) and not callable(value):
            parts.append(f"## headway.{name}\n\n{docstring(value)}")
            parts += [described(f"headway.{name}.{each}", getattr(value, each)) for each in value.__all__]
        elif callable(value):
            parts.append(described(f"headway.{name}", value))
    return "\n\n".join(parts) + "\n"


def methods(kind: type) -> list[tuple[str, Any]]:
    """Public methods and properties that have a docstring, in the order of the source."""
    own = [(name, found) for name, found in vars(kind).items() if name == "__call__" or not name.startswith("_")]
    return [
        (name, found.fget if isinstance(found, property) else getattr(found, "__func__", found))
        for name, found in own
        if (callable(found) or isinstance(found, property | classmethod | staticmethod)) and found.__doc__
    ]


def described(name: str, value: Any) -> str:
    target = value.__call__ if inspect.ismodule(value) else value  # a package that is callable too
    depth = "###" if name.count(".") > 1 else "##"
    code = f"```python\n{signature_of(name.removeprefix('headway.'), target)}\n```"
    return f"{depth} {name}\n\n{code}\n\n{docstring(target)}"


def signature_of(name: str, value: Any) -> str:
    """In one line, or a line for each parameter."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    unquoted = re.sub(r"(: |-> )'([^']*)'", r"\1\2", f"{name}{signature}").replace("<factory>", "…")
    if len(unquoted) <= WIDTH:
        return unquoted
    head, _, tail = unquoted.partition("(")
    inside, _, result = tail.rpartition(")")
    parameters = re.split(r", (?=(?:\*+)?\w*(?::|$)|\*, |\*\*)", inside)
    return f"{head}(\n" + "".join(f"    {each},\n" for each in parameters) + f"){result}"


def docstring(value: Any) -> str:
    """As Markdown, in which what looks like a tag stays text. That which a dataclass gets by itself is left out."""
    text = inspect.getdoc(value) or ""
    return "" if text.startswith(f"{getattr(value, '__name__', '')}(") else text.replace("<", "&lt;")
