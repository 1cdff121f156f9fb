"""Filters, methods and globals: a template has those that transformers' renderer has, with the same results."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from jinja2 import filters
from jinja2.sandbox import ImmutableSandboxedEnvironment

from drut.model.template.sandbox import BoundedEnvironment
from drut.model.template.template import ChatTemplate

HELLO = [{"role": "user", "content": "Hello"}]
VALUES: Mapping[str, object] = {
    "text": 'The <b>quick</b> "brown" fox & www.example.com, a@b.de jumps over 13 lazy dogs. दूसरा\n\nline\t2',
    "list": ["b", "A", "c", "a", "d"], "numbers": [3, 1.5, 2], "lists": [[1], [2, 3]],
    "people": [{"name": "Ann", "age": 3}, {"name": "Ben", "age": 4}], "map": {"b": 1, "a": "<x>", "none": None},
}
USES = [
    "text | center(150)", "text | striptags", "text | truncate(20)", "text | truncate(20, true, '')",
    "text | wordcount", "text | wordwrap(12)", "text | wordwrap(9, false, '|')", "text | urlencode", "map | urlencode",
    "text | urlize", "text | urlize(12, true, target='_blank', rel='me', extra_schemes=['tel:'])", "map | xmlattr",
    "map | xmlattr(false)", "map | pprint", "123456789 | filesizeformat", "123456789 | filesizeformat(true)",
    "people[0] | attr('items') | string", "people[0] | attr('name')", "list | batch(2) | list",
    "list | batch(3, '-') | list", "list | slice(2) | list", "list | slice(3, '-') | list", "numbers | sum",
    "numbers | sum(start=10)", "people | sum('age')", "people | sum(attribute='age')", "lists | sum(start=[])",
    "[] | sum", "list | batch(2) | map('join', '+') | join(' ')", "'{0} is {age:>5}|{0!r}'.format('Ann', age=3)",
    "'{0[name]} {x.age}'.format(people[0], x=people[1])", "'{a}'.format_map(map)", "'{:{}}|'.format('x', 5)",
    "'{{}}'.format()", "('%s' | safe).format('<')", "'a'.center(5, '*')", "'a'.ljust(3) + 'b'.rjust(3) + '7'.zfill(3)",
    "'a\tb'.expandtabs(4)", "'a'.isascii()", "'a1'.isidentifier()", "'a'.isprintable()", "dict.fromkeys(list, 0)",
    "dict(map, x=1)", "(5).bit_length()", "(5.0).is_integer()", "list | map('upper') | sort | join", "text | title",
    "text | forceescape", "'{0.__class__}'.format(1)",
]


@pytest.mark.parametrize("use", USES)
def test_a_use_gives_what_the_plain_sandbox_gives(use: str) -> None:
    class Dict:
        def __call__(self, *args: object, **kwargs: object) -> object:
            return dict(*args, **kwargs)

        fromkeys = staticmethod(dict.fromkeys)

    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    plain.globals["dict"] = Dict()
    source = "{{ " + use + " }}"
    assert ChatTemplate(source).render(HELLO, variables=VALUES) == plain.from_string(source).render(VALUES)


def test_every_filter_and_test_of_jinja_is_there() -> None:
    environment = BoundedEnvironment()
    assert not filters.FILTERS.keys() - environment.filters.keys()
    assert not ImmutableSandboxedEnvironment().tests.keys() - environment.tests.keys()


def test_a_random_item_is_always_the_same_one() -> None:
    template = ChatTemplate("{{ list | random }}{{ [] | random }}")
    made = {template.render(HELLO, variables=VALUES) for _ in range(20)}
    assert len(made) == 1
    assert made < set(json.loads(json.dumps(VALUES["list"])))
