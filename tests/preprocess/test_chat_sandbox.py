"""Hostile chat templates (TRUST 27): they cannot leave the sandbox, and are stopped in time."""

import pytest

from headway.errors import HeadwayError
from headway.preprocess.chat import render

VARIABLES = {"messages": [{"role": "user", "content": "secret"}], "bos_token": "<s>"}


def test_a_valid_template_is_rendered():
    """Control."""
    assert render("{% for m in messages %}{{ m.content | upper }}{% endfor %}", VARIABLES) == "SECRET"


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__globals__['sys'].modules }}",
        "{{ lipsum.__globals__['os'].system('id') }}",
        "{{ self._TemplateReference__context }}",
        "{{ messages[0]['content'].format.__self__.__class__ }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{{ (messages | map(attribute='__class__') | list)[0].__mro__ }}",
        "{{ (messages | attr('__class__')).__mro__ }}",
        "{{ messages.append('x') }}",
        "{{ messages[0].update({'role': 'system'}) }}",
        "{{ open('/etc/passwd').read() }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os.getcwd() }}",
        "{% for x in range(10**9) %}x{% endfor %}",
        "{{ 1 // 0 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ undefined_thing() }}",
        "{% for %}",
    ],
)
def test_trust_27_a_template_cannot_leave_the_sandbox(template):
    """An error that names the template; or, where Jinja ignores what is forbidden, an empty result."""
    try:
        text = render(template, VARIABLES)
    except HeadwayError as error:
        assert "chat template" in str(error)
    else:
        assert text.strip() in ("", "''") or ("class" not in text and "module" not in text and "root" not in text), text


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ messages | tojson }}{% endfor %}{% endfor %}",
    ],
    ids=["loops", "calls", "text"],
)
def test_trust_27_a_slow_template_is_stopped(template):
    with pytest.raises(HeadwayError, match="chat template was not rendered within 1 s"):
        render(template, VARIABLES, seconds=1)


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'x' * 10**10 }}",
        "{{ '%10000000000d' % 1 }}",
        "{{ '{:10000000000}'.format(1) }}",
        "{{ 'x' | center(10**10) }}",
        "{% set ns = namespace(x='xx') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "{{ 'x' * 5 * 10**6 }}",
    ],
    ids=["times", "percent", "format", "center", "doubling", "long"],
)
def test_trust_27_large_output_is_refused(template):
    with pytest.raises(HeadwayError, match="chat template"):
        render(template, VARIABLES)
