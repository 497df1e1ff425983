"""Chat templates render as the reference renders them, in a sandbox that stops."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import ModuleType
from typing import Any

import pytest

from plait.text import ChatTemplate, Limits, TokenizerError
from tests.text import making

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "  What is 2 < 3 & 'x' \"y\"?  "},
    {"role": "assistant", "content": "<think>hm</think>\n\nYes.", "tool_calls": None},
    {"role": "user", "content": "각 ďone?"},
]
TOOLS = [{"type": "function", "function": {"name": "add", "description": "<b>é</b>", "parameters": {"a": 1.5}}}]

TEMPLATES = {
    "chatml": making.CHATML,
    "llama2": (
        "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
        "{% set system = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system = false %}"
        "{% endif %}{% for message in loop_messages %}"
        "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}"
        "{% endif %}{% if loop.index0 == 0 and system %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + "
        "message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}"
        "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
        "{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
    ),
    "blocks, namespaces, loop controls": """{{- bos_token }}
{%- set ns = namespace(last=-1, n=0) %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}{% continue %}{% endif %}
    {% if loop.index > 3 %}
        {% break %}
    {% endif %}
    {% set ns.n = ns.n + 1 %}
  <|{{ message.role | upper }}|>
{{ message.content | trim }}{{ eos_token }}
{% endfor %}
{{ ns.n }} {{ dict(a=1, b=[1, 2]) | tojson }} {% generation %}said{% endgeneration %}
{% if add_generation_prompt -%}
    <|assistant|>
{%- endif %}
""",
    "tools": """{% if tools %}{{ tools | tojson }}
{% for tool in tools %}{{ tool | tojson(indent=4) }}{{ tool.function.parameters | tojson(separators=(',', ':')) }}
{% endfor %}{% endif %}{% for message in messages %}{% if message.content is string %}
{% if '</think>' in message.content %}{% set content = message.content.split('</think>')[-1].lstrip('\\n') %}
{% else %}{% set content = message.content %}{% endif %}{{ message.role }}: {{ content }}{{ '\\n' }}{% endif %}
{%- endfor %}{{ pad_token is defined }}{{ documents is none }}{{ enable_thinking | default('unset') }}""",
    "macros": """{% macro turn(role, text='') %}[{{ role }}]{{ text }}{% endmacro %}
{%- for message in messages[::-1] -%}
{{ turn(message['role'], message.content) }}{{ loop.revindex0 }}{% if not loop.last %}{{ ', ' }}{% endif %}
{%- endfor %}{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join('|') }}""",
    "dates": "{{ strftime_now('%d %b %Y') }}{{ messages | length }}",
}


def rendered(source: str, messages: Any = None, limits: Limits | None = None, **variables: Any) -> str:
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    template = ChatTemplate(source=source, tokens=tokens, limits=limits or Limits(seconds=20))
    return template.render(MESSAGES if messages is None else messages, **variables)


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_render_as_the_references(name: str, reference: ModuleType) -> None:
    from tokenizers import Tokenizer as Library

    theirs = reference.PreTrainedTokenizerFast(
        tokenizer_object=Library.from_str(making.byte_level(("<s>", "</s>"))), bos_token="<s>", eos_token="</s>"
    )
    messages = MESSAGES[1:] if name == "llama2" else MESSAGES
    variables: list[dict[str, Any]] = [{}, {"tools": TOOLS}, {"enable_thinking": False}]
    for given in variables:
        for generation in (True, False):
            options = {"add_generation_prompt": generation, **given}
            expected = theirs.apply_chat_template(messages, chat_template=TEMPLATES[name], tokenize=False, **options)
            assert rendered(TEMPLATES[name], messages, **options) == expected


def test_the_tool_use_template_is_for_tools() -> None:
    template = ChatTemplate(source="plain", tool_use="with {{ tools | length }}")
    assert template.render(MESSAGES) == "plain"
    assert template.render(MESSAGES, tools=TOOLS) == "with 1"


FORBIDDEN = {
    "{{ ''.__class__.__mro__ }}": "unsafe",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}": "unsafe",
    "{{ messages.append(1) }}": "unsafe|safely|append",
    "{{ raise_exception.__globals__['json'] }}": "unsafe",
    "{% set n = namespace(__class__=1) %}": "__class__",
    "{{ dict.__class__.__base__ }}": "unsafe",
    "{{ cycler.__init__.__globals__.os }}": "unsafe",
    "{% include '/etc/passwd' %}": "loader",
}


@pytest.mark.parametrize("source", FORBIDDEN)
def test_sv8_a_template_cannot_reach_the_interpreter(source: str) -> None:
    with pytest.raises(TokenizerError, match=FORBIDDEN[source]) as error:
        rendered(source)
    assert "\n" not in str(error.value)


ENDLESS = {
    "{% for i in range(10**9) %}{% endfor %}": "Range too big|seconds",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}": "took more than 0.4 seconds",
    "{{ messages[0].content * 10**9 }}": "memory",
    "{{ 'a' * 10**9 }}": "memory",
    "{% set x = 7 ** 9 %}{{ x ** x }}": "took more than 0.4 seconds",
    "{% for i in range(9999) %}{{ 'aaaaaaaaaa' * 1000 }}{% endfor %}": "writes more than 1000000 characters",
    "{{ 'a' * 2000000 }}": "writes more than 1000000 characters",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "deeply",
    "{{ " + "(" * 4000 + "1" + ")" * 4000 + " }}": "deeply|crashed",
    "{{ [1] * 10**9 }}": "memory",
    "{{ '%0999999999d' % 1 }}": "memory|seconds",
}


@pytest.mark.parametrize("source", ENDLESS)
def test_sv8_a_template_that_does_not_end_is_stopped(source: str) -> None:
    limits = Limits(seconds=0.4, memory=256 * 2**20, output=1_000_000)
    rendered("", limits=Limits())  # the process is there: what is timed is the template
    start = time.monotonic()
    with pytest.raises(TokenizerError, match=ENDLESS[source]) as error:
        rendered(source, limits=limits)
    assert time.monotonic() - start < 3
    assert str(error.value).startswith("chat template: ")
    assert len(str(error.value)) < 400
    assert rendered("{{ messages[3].content }}") == MESSAGES[3]["content"]  # the next rendering has its process


def test_sv8_a_template_that_kills_its_process_is_an_error() -> None:
    from plait.text import sandbox

    rendered("")
    child = sandbox._child
    assert child is not None
    child.process.kill()
    child.process.wait()
    assert rendered("again") == "again"


def test_the_templates_own_words_are_the_error() -> None:
    with pytest.raises(TokenizerError, match=r"^chat template: Roles must alternate\.$"):
        rendered(TEMPLATES["llama2"], [MESSAGES[2]])
    with pytest.raises(TokenizerError, match="line 2 of the template"):
        rendered("\n{% if %}")
    with pytest.raises(TokenizerError, match="plain JSON values"):
        rendered("", [{"role": "user", "content": object()}])


def test_rendering_starts_fast_and_imports_no_more_than_it_needs() -> None:
    program = (
        "import sys, time; from plait.text import ChatTemplate; t = time.process_time();"
        "ChatTemplate(source='x').render([]); first = time.process_time() - t; t = time.process_time();"
        "ChatTemplate(source='y').render([]); again = time.process_time() - t;"
        "print(first, again, 'torch' in sys.modules, 'jinja2' in sys.modules)"
    )
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    best = next_ = 9.0
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr
        first, again, torch, jinja2 = done.stdout.split()
        assert (torch, jinja2) == ("False", "False")
        best, next_ = min(best, float(first)), min(next_, float(again))
    assert best < 0.8 and next_ < 0.1  # about 0.15 and 0.001 on a quiet machine, in processor time


def test_a_long_conversation_goes_through() -> None:
    text = "word " * 400_000
    assert rendered("{{ messages[0].content }}", [{"role": "user", "content": text}]) == text
