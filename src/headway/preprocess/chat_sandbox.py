"""Renders a chat template in a sandbox. Run as a separate process that reads one JSON object on standard input and
writes one on standard output.

A template comes with a model and is untrusted. Jinja's sandbox forbids attributes and calls that lead out of it; the
limits of the process bound its memory and time. It has the names that published templates use: `messages`, `bos_token`,
`eos_token`, `add_generation_prompt`, `raise_exception`, `strftime_now`, the filter `tojson` and the tag `generation`.
"""

import datetime
import json
import sys
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MEMORY = 2**29  # bytes of address space


class Generation(Extension):
    """{% generation %} … {% endgeneration %} marks the assistant's reply; it does not change the text."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def to_json(value: Any, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)


def render(template: str, variables: dict[str, Any]) -> str:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment.from_string(template).render(**variables)


def limit(seconds: int) -> None:
    """Limits memory and CPU time, and forbids writing files."""
    try:
        import resource
    except ImportError:  # Windows has no such limits; the parent process stops this one after a timeout
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def main() -> None:
    request = json.load(sys.stdin)
    limit(request["seconds"])
    most = request["max_characters"]
    try:
        text = render(request["template"], request["variables"])
        reply = {"error": f"it writes more than {most} characters"} if len(text) > most else {"text": text}
    except (jinja2.TemplateError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        reply = {"error": str(error) or type(error).__name__}
    except MemoryError:
        reply = {"error": "it takes too much memory"}
    json.dump(reply, sys.stdout)


if __name__ == "__main__":
    main()
