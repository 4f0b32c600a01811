"""A chat template, rendered where it can do no harm. Run as a process of its own, which reads one
JSON object on standard input and writes one on standard output.

A template comes with a model, from anywhere. Jinja's sandbox keeps it from attributes and calls that lead out of it;
the limits of the process keep it from filling the memory and from going on for ever. It knows the names that published
templates use: `messages`, `bos_token`, `eos_token`, `add_generation_prompt`, `raise_exception`, `strftime_now`, the
filter `tojson` and the tag `generation`.
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

MEMORY = 2**29  # bytes, for everything


class Generation(Extension):
    """{% generation %} … {% endgeneration %} marks what the assistant says, and changes nothing."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def to_json(value: Any, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)


def render(template: str, names: dict[str, Any]) -> str:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment.from_string(template).render(**names)


def limit(seconds: int) -> None:
    """Memory, time on the processor (however busy it is with others), and no file may be written."""
    try:
        import resource
    except ImportError:  # Windows has no such limits; whoever waits for the process ends it
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def main() -> None:
    asked = json.load(sys.stdin)
    limit(asked["seconds"])
    try:
        text = render(asked["template"], asked["names"])
        too_long = len(text) > asked["most"]
        answer = {"error": f"it writes more than {asked['most']} characters"} if too_long else {"text": text}
    except (jinja2.TemplateError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        answer = {"error": str(error) or type(error).__name__}
    except MemoryError:
        answer = {"error": "it takes too much memory"}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
