"""Renders a chat template for one or several conversations in a sandbox. Run in a separate process
(headway.limited_process).

A template comes with a model and is untrusted. Jinja's sandbox forbids attributes and calls that lead out of it; the
limits of the process bound its memory and time. It has the names that published templates use: `messages`, `tools`,
`bos_token`, `eos_token`, `add_generation_prompt`, `raise_exception`, `strftime_now`, the filter `tojson` and the tag
`generation`.
"""

import datetime
import json
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class GenerationTag(Extension):
    """{% generation %} … {% endgeneration %} marks the assistant's reply; it does not change the text."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def compile_template(template: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment.from_string(template)


def render(template: jinja2.Template, variables: dict[str, Any], most: int) -> dict[str, str]:
    try:
        text = template.render(**variables)
    except (jinja2.TemplateError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        return {"error": str(error) or type(error).__name__}
    except MemoryError:
        return {"error": "it takes too much memory"}
    return {"error": f"it writes more than {most} characters"} if len(text) > most else {"text": text}


def answer(request: dict[str, Any]) -> list[dict[str, str]]:
    """For each conversation its text, or an error."""
    most, conversations = request["max_characters"], request["conversations"]
    try:
        template = compile_template(request["template"])
    except (jinja2.TemplateError, RecursionError, ValueError) as error:
        return [{"error": str(error) or type(error).__name__}] * len(conversations)
    except MemoryError:
        return [{"error": "it takes too much memory"}] * len(conversations)
    return [render(template, variables, most) for variables in conversations]
