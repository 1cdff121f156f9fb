import json
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.ext import Extension
from jinja2.nodes import Scope
from jinja2.sandbox import ImmutableSandboxedEnvironment

from drut.errors import DrutError, ModelFileError, RequestError
from drut.model.template.template import MAX_SOURCE_CHARS, ChatTemplate

HELLO = [{"role": "user", "content": "Hello"}]
TALK = [
    {"role": "system", "content": "  Be brief.\n"},
    {"role": "user", "content": 'What is "1 < 2"?'},
    {"role": "assistant", "content": "<think>\neasy\n</think>\n\ntrue & नमस्ते"},
    {"role": "user", "content": "Thanks 🔥"},
]

CHATML = """{% for message in messages %}
    {%- if loop.first and message.role != 'system' %}
<|im_start|>system
Default.<|im_end|>
    {%- endif %}
<|im_start|>{{ message['role'] + '\\n' + message.content | trim }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}"""

HEADERS = """{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system = '' %}{% endif %}
{{- '<|h|>system<|/h|>\\n\\n' ~ 'Today: ' ~ date_string ~ '\\n' ~ system ~ eos_token }}
{%- for message in messages %}
    {%- if tools is not none and loop.index0 == 0 %}{{ raise_exception('no tools here') }}{% endif %}
    {%- generation %}{{- '<|h|>' + message['role'] + '<|/h|>' + message.content|trim + eos_token }}
    {%- endgeneration %}
{%- endfor %}"""

THINKING = """{%- macro turn(role, text='') %}<s>{{ role }}: {{ text }}</s>{{ '\n' }}{%- endmacro %}
{%- set ns = namespace(last=-1, parts=[]) %}
{%- for m in messages[::-1] if m.role == 'user' %}
    {%- if ns.last < 0 %}{% set ns.last = loop.index0 %}{% endif %}
{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'system' %}{% continue %}{% endif %}
    {%- set content = m.content %}
    {%- if '</think>' in content and not loop.last %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {%- set ns.parts = ns.parts + [content | upper] %}
    {{- turn(m.role, text=content) }}
{%- endfor %}
{{- ns.parts | join('|') }} {{ messages | map(attribute='role') | unique | sort | list | tojson }}
{%- set users = messages | selectattr('role', 'equalto', 'user') %}
{%- set rest %}{{ users | list | length }} of {{ messages|length }}{% endset %}
 {{ rest }} {{ (messages | first).content | tojson(indent=2) }}
 {{ '%s/%03d' % ('x', 7) }} {{ 7 // 2 ** 2 }} {{ -7 % 4 }}
{%- filter upper %}{% if enable_thinking is defined and enable_thinking %} think{% endif %} x{% endfilter %}
{%- for key, group in messages | groupby('role') %} {{ key }}={{ group | length }}{% endfor %}
{%- for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}{{ loop.cycle('a', 'b') }}{{ i }}{% endfor %}
{%- for i in [] %}{% else %}none{% endfor %}
{%- for x in [[1, [2]], 3] recursive %}{{ loop(x) if x is iterable else x }};{% endfor %}
{%- for k, v in {'b': 1, 'a': '2'} | dictsort %} {{ k ~ v }}{% endfor %}
 {{ {'a': (1, none, true)} }} {{ 'a\nb' | indent(2) }}"""


class Generation(Extension):
    tags = frozenset(["generation"])

    def parse(self, parser):
        line = next(parser.stream).lineno
        return Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def plain_render(source, messages, **variables):
    """The template in Jinja's own sandbox, set up as Hugging Face's renderer is."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
    return environment.from_string(source).render(
        messages=messages, tools=None, documents=None, bos_token="<s>", eos_token="</s>", **variables
    )


def render(source, messages=HELLO, **options):
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>").render(messages, **options)


@pytest.mark.parametrize("source", [CHATML, HEADERS, THINKING], ids=["chatml", "headers", "thinking"])
@pytest.mark.parametrize("messages", [HELLO, TALK, TALK[1:]])
@pytest.mark.parametrize("variables", [{}, {"enable_thinking": True, "date_string": "today"}])
def test_text_equals_that_of_the_plain_sandbox(source, messages, variables):
    for prompt in (True, False):
        expected = plain_render(source, messages, add_generation_prompt=prompt, **variables)
        assert render(source, messages, add_generation_prompt=prompt, variables=variables) == expected


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=4))
def test_any_content_comes_through(contents):
    messages = [{"role": "user", "content": content} for content in contents]
    source = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    assert render(source, messages) == "".join(f"[{content}]" for content in contents)


def test_a_message_is_data_not_template():
    assert render("{{ messages[0].content }}", [{"role": "user", "content": "{{ 7 * 7 }}"}]) == "{{ 7 * 7 }}"


def test_json_is_not_escaped_for_html():
    assert render("{{ messages[0].content | tojson }}", [{"role": "u", "content": "<न'&>"}]) == '"<न\'&>"'


def test_the_date():
    assert render("{{ strftime_now('%Y') }}") == time.strftime("%Y")
    assert render("{{ strftime_now('%-d %b %Y, 100%%') }}").endswith("100%")


@pytest.mark.parametrize(
    ("source", "role"),
    [("{{ messages[0].role }}", "system"), ("{{ 'developer' and messages[0].role }}", "developer")],
)
def test_a_developer_is_a_system_where_the_template_knows_none(source, role):
    assert render(source, [{"role": "developer", "content": "x"}]) == role


@pytest.mark.parametrize(
    ("messages", "named"),
    [
        ([], "messages"),
        (None, "messages"),
        ("Hello", "messages"),
        ([*HELLO, "Hello"], r"messages\[1\]"),
        ([{"content": "x"}], r"messages\[0\]\.role"),
        ([{"role": 5, "content": "x"}], r"messages\[0\]\.role"),
        ([{"role": "user"}], r"messages\[0\]\.content"),
        ([{"role": "assistant"}], r"messages\[0\]\.content"),
        ([{"role": "user", "content": None}], r"messages\[0\]\.content"),
        ([{"role": "user", "content": [{"type": "text", "text": "x"}]}], r"messages\[0\]\.content"),
        ([{"role": "user", "content": "x", "tool_calls": "no"}], r"messages\[0\]\.tool_calls"),
        ([{"role": "user", "content": "x", "weights": "no"}], r"messages\[0\]\.weights"),
        ([{"role": "user", "content": "x", "name": 5}], r"messages\[0\]\.name"),
        ([{"role": "user", "content": "x"}] * 100_000, "list"),
    ],
)
def test_messages_that_are_refused(messages, named):
    with pytest.raises(RequestError, match=named):
        render("x", messages)


@pytest.mark.parametrize(
    "name",
    ["messages", "tools", "chat_template", "tokenize", "add_generation_prompt", "range", "raise_exception"],
)
def test_variables_that_cannot_be_set(name):
    with pytest.raises(RequestError, match=name):
        render("x", variables={name: True})


@pytest.mark.parametrize(
    "source",
    [
        "{% for %}",
        "{{",
        "{% if x %}",
        "{% nope %}",
        "{{ x | from_json }}",
        "{{ " + "(" * 9999 + ")" * 9999 + " }}",
        "{{ " + "9" * 9999 + " }}",
        "x" * (MAX_SOURCE_CHARS + 1),
    ],
)
def test_a_source_that_is_no_template(source):
    with pytest.raises(ModelFileError) as caught:
        ChatTemplate(source)
    assert one_line(caught)


def one_line(caught):
    message = str(caught.value)
    return message.startswith("chat template: ") and "\n" not in message and len(message) < 300


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ raise_exception('Roles must\nalternate') }}", "Roles must alternate"),
        ("{{ nothing.at_all }}", "'nothing' is undefined"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ {[1]: 2} }}", "TypeError"),
        ("{{ messages[0].content.x.y }}", "has no attribute 'x'"),
        ("{% include 'x' %}", "no loader"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ strftime_now('%99999999d') }}", "strftime_now"),
    ],
)
def test_what_goes_wrong_in_a_template_is_one_line(source, said):
    with pytest.raises(RequestError, match=said) as caught:
        render(source)
    assert one_line(caught)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('x') }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(x=1) }}",
        "{{ dict.__class__.__mro__ }}",
        "{{ dict.fromkeys.__globals__.x }}",
        "{{ {}.fromkeys([1]) }}",
        "{% set ns = namespace(_x=1) %}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ (1 | attr('__class__')).__mro__ }}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ '{x.__class__.__mro__}'.format_map({'x': 1}) }}",
        "{{ (5).to_bytes(9, 'big') }}",
        "{{ 'a'.encode() }}",
        "{{ range.__call__(1) }}",
        "{{ raise_exception.__globals__['x'] }}",
        "{{ self._TemplateReference__context.x }}",
    ],
)
def test_no_way_out_of_the_sandbox(source):
    with pytest.raises(RequestError):
        render(source)


A_LOT = "{% set a = 'a' * 8000000 %}"
R = "{% set r = range(99999) %}"
LISTS = "{% set a = range(49999) | list %}{% set b = range(49999) | list %}"
DOUBLING = "{{% set ns = namespace(x={start}) %}}{{% for i in range(99) %}}{step}{{% endfor %}}{{{{ ns.x }}}}"
DOUBLE = {
    "+": "{% set ns.x = ns.x + ns.x %}",
    "*": "{% set ns.x = ns.x * ns.x %}",
    "~": "{% set ns.x = ns.x ~ ns.x %}",
    "%": "{% set ns.x = '%s%s' % (ns.x, ns.x) %}",
    "set": "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}",
    "join": "{% set ns.x = [ns.x, ns.x] | join %}",
    "replace": "{% set ns.x = ns.x.replace('a', 'aa') %}",
    "list": "{% set ns.x = [ns.x, ns.x] %}",
    "dict": "{% set ns.x = {1: ns.x, 2: ns.x} %}",
    "tuple": "{% set ns.x = (ns.x,) %}",
}
HOSTILE = {
    "ran longer": {
        "loops": R + "{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
        "filtered loop": R + "{% for a in r if " + "r.x or " * 150 + "0 %}{% endfor %}",
        "recursive loop": R + "{% for a in [r] recursive %}{{ loop(r) if a is iterable }}{% endfor %}" * 99,
        "branching macro": "{% macro f(n) %}.{{ f(n-1) ~ f(n-1) if n }}{% endmacro %}{{ f(40) }}",
        "comparisons": LISTS + "{% set c = 'x' in a or 'x' in b or 'x' in a or 'x' in b %}" * 700,
        "tests": LISTS + "{% set c = a is eq b %}" * 500,
        "filters": LISTS + "{% set c = a | sort %}" * 300,
        "chain of filters": "{{ range(99999)" + " | map('string')" * 60 + " | list }}",
        "words": "{{ ('a ' * 4000000) | wordcount }}",
        "sums": LISTS + "{% set c = a | batch(1) | list %}{{ c | sum(start=[]) }}" * 9,
        "fields": "{{ ('{}' * 99999).format(*range(99999)) }}" * 9,
        "texts": LISTS + "{% macro m() %}" + "{{ a }}" * 200 + "{% endmacro %}{{ m() }}",
    },
    "made a text": {
        "*": "{{ 'a' * 10 ** 9 }}",
        "doubling by +": DOUBLING.format(start="'aa'", step=DOUBLE["+"]),
        "doubling by ~": DOUBLING.format(start="'aa'", step=DOUBLE["~"]),
        "doubling by %": DOUBLING.format(start="'aa'", step=DOUBLE["%"]),
        "doubling by set": DOUBLING.format(start="'aa'", step=DOUBLE["set"]),
        "doubling by replace": DOUBLING.format(start="'a'", step=DOUBLE["replace"]),
        "~": A_LOT + "{{ " + "a ~ " * 200 + "a }}",
        "replace": "{{ ('a' * 99999) | replace('a', 'b' * 99999) }}",
        "replace nothing": "{{ ('a' * 99999).replace('', 'b' * 99999) }}",
        "join": "{{ range(99999) | join('b' * 99999) }}",
        "join of a text": "{{ ('b' * 99999).join(range(9999) | map('string')) }}",
        "many widths": "{{ '%999d' * 99999 % 1 }}",
        "indent of lines": "{% set a = ('\n' * 99990) | indent(60, true, true) %}{{ a ~ a }}",
        "block filter": "{% filter replace('a', 'b' * 4000000 ~ 'b') %}aaaa{% endfilter %}",
        "many outputs": "{% for i in range(99999) %}{{ 'a' * 999 }}{% endfor %}",
        "large outputs": A_LOT + "{{ a }}{{ a }}",
        "format": A_LOT + "{{ '{0}{0}'.format(a) }}",
        "format of many": "{{ ('{:999}' * 99999).format(*range(99999)) }}",
        "format_map": A_LOT + "{{ '{x}{x}'.format_map({'x': a}) }}",
        "center": "{{ 'a' | center(10 ** 9) }}",
        "ljust": "{{ 'a'.ljust(10 ** 9) }}",
        "expandtabs": "{{ ('\t' * 99999).expandtabs(10 ** 6) }}",
        "urlencode": "{{ ('é' * 8000000) | urlencode }}",
        "xmlattr": "{{ {'a': '&' * 8000000} | xmlattr }}",
        "wordwrap": "{{ ('a ' * 9999) | wordwrap(1, wrapstring='b' * 99999) }}",
        "urlize": "{{ ('a.de ' * 9999) | urlize(target='b' * 9999) }}",
    },
    "made more than": {"copies": A_LOT + "{% set b = a[1:] %}" * 20},
    "made a list": {
        "*": "{{ [0] * 10 ** 9 }}",
        "* turned": "{{ 10 ** 9 * (0,) }}",
        "doubling by +": DOUBLING.format(start="[1]", step=DOUBLE["+"]),
        "doubling by join": DOUBLING.format(start="'aa'", step=DOUBLE["join"]),
        "tree of lists": DOUBLING.format(start="[1]", step=DOUBLE["list"]),
        "tree of dicts": DOUBLING.format(start="{}", step=DOUBLE["dict"]),
        "deep": DOUBLING.format(start="(1,)", step=DOUBLE["tuple"]),
        "texts": "{% set a = 'a' * 4000000 %}{% set b = [a, a, a] %}",
        "split": "{{ ('a ' * 4000000).split() }}",
        "split by": "{{ ('a' * 8000000).split('a') }}",
        "lines": "{{ ('\n' * 8000000).splitlines() }}",
        "letters": "{{ ('é' * 8000000) | list }}",
        "sorted letters": A_LOT + "{{ a | sort }}",
        "selected letters": A_LOT + "{{ a | select('none') | list }}",
        "joined letters": A_LOT + "{{ a | join }}",
        "titles": "{{ ('a ' * 4000000) | title }}",
        "arguments": "{{ cycler(*('é' * 8000000)) }}",
        "batch": "{{ [1] | batch(10 ** 9, 0) | list }}",
        "slice": "{{ [1] | slice(10 ** 9) | list }}",
        "sum": LISTS + "{{ [a, b, a] | sum(start=[]) }}",
        "fromkeys": "{{ dict.fromkeys('é' * 8000000) }}",
    },
    "made a number": {
        "**": "{{ 10 ** (10 ** 10) }}",
        "doubling by *": DOUBLING.format(start=10, step=DOUBLE["*"]),
    },
    "searched": {
        "strip": A_LOT + "{{ a.strip('b' * 8000000 ~ 'a') }}",
        "trim": A_LOT + "{{ a | trim('b' * 8000000 ~ 'a') }}",
        "rfind": "{{ ('b' ~ 'a' * 4000000).rfind('a' * 2000000) }}",
    },
    "conversion": {
        "width": "{{ '%1000000000d' % 1 }}",
        "width by filter": "{{ '%1000000000d' | format(1) }}",
        "width from the values": "{{ '%*d' % (1000000000, 1) }}",
        "width after a nested name": "{{ '%((a))99999999d' % {'(a)': 1} }}",
    },
    "width of more": {
        "format": "{{ '{:1000000000}'.format(1) }}",
        "format, nested": "{{ '{:{}}'.format(1, 1000000000) }}",
    },
    "more than 64": {
        "indent": "{{ 'a' | indent(1000000000, true) }}",
        "json": "{{ [1] | tojson(indent=1000000000) }}",
        "round": "{{ 5 | round(-1000000000) }}",
    },
    "slow filter": {
        "urlize": "{{ ('(' * 99999) | urlize }}",
        "striptags": "{{ ('<b>' * 99999) | striptags }}",
        "pprint": "{{ range(40000) | list | pprint }}",
        "wordwrap": "{{ ('a' * 99999) | wordwrap(1) }}",
    },
    "Range too big": {"range": "{% for a in range(10 ** 9) %}{% endfor %}"},
    "RecursionError": {"loop": "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}"},
}
CASES = [(said, source) for said, sources in HOSTILE.items() for source in sources.values()]
NAMES = [f"{said}: {name}" for said, sources in HOSTILE.items() for name in sources]


@pytest.mark.slow
@pytest.mark.parametrize(("said", "source"), CASES, ids=NAMES)
def test_a_hostile_template_ends_soon_with_one_line(said, source):
    template = ChatTemplate(source, time_limit_s=0.1 if said == "ran longer" else 5)
    start = time.thread_time()
    with pytest.raises(RequestError, match=said) as caught:
        template.render(HELLO)
    assert time.thread_time() - start < 1
    assert one_line(caught)


def test_a_namespace_does_not_spell_what_it_holds():
    assert render("{{ namespace(x='a' * 99) }}") == "<Namespace>"


def test_the_limit_holds_in_several_threads_at_once():
    template = ChatTemplate(
        "{% if messages[0].content == 'loop' %}" + HOSTILE["ran longer"]["loops"] + "{% endif %}ok",
        time_limit_s=0.3,
    )
    results = {}

    def work(name):
        try:
            results[name] = template.render([{"role": "user", "content": name}])
        except DrutError as error:
            results[name] = str(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("loop", "Hello", "Hi")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert results == {"loop": "chat template: ran longer than 0.3 s", "Hello": "ok", "Hi": "ok"}
    assert template.render(HELLO) == "ok"


def test_a_long_conversation_is_within_the_limits():
    messages = [{"role": "user", "content": "x" * 2000}] * 1000
    assert len(render(CHATML, messages)) > 2_000_000
    assert len(render(HEADERS, messages)) > 2_000_000


def test_an_answer_can_be_continued():
    template = ChatTemplate(CHATML)
    open_ended = [*HELLO, {"role": "assistant", "content": "Once upon a"}]
    text = template.render(open_ended, continue_final=True)
    assert text.endswith("<|im_start|>assistant\nOnce upon a")
    assert template.render(open_ended, add_generation_prompt=False).startswith(text)
    # as in transformers: a template that trims messages continues behind the last word, another behind the space
    spaced = [*HELLO, {"role": "assistant", "content": " Once "}]
    assert template.render(spaced, continue_final=True).endswith("assistant\nOnce")
    as_it_is = ChatTemplate("{% for m in messages %}[{{ m.content }}]{% endfor %}")
    assert as_it_is.render(spaced, continue_final=True) == "[Hello][ Once "
    with pytest.raises(RequestError, match="changes the last message"):
        ChatTemplate("{{ messages[0].content }}").render(open_ended, continue_final=True)
    cut = ChatTemplate("{{ messages[-1].content.split('upon')[-1] }}")
    with pytest.raises(RequestError, match="changes the last message"):
        cut.render(open_ended, continue_final=True)


def test_variables_are_what_a_caller_may_set():
    assert ChatTemplate(CHATML).variables == frozenset()
    assert "date_string" in ChatTemplate(HEADERS).variables
    assert "date_string" in ChatTemplate("{% if date_string %}{{ strftime_now('%d') }}{% endif %}").variables
