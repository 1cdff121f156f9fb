"""Tools in a prompt, in the form that each template wants."""

from __future__ import annotations

from typing import Any

import pytest

from drut.errors import RequestError
from drut.model.template import ChatTemplate

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def talk(arguments: str) -> list[dict[str, Any]]:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}
    return [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "sunny", "tool_call_id": "c1", "name": "look"}]


AS_JSON = ("{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{% for c in m.tool_calls %}"
           "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}")
AS_TEXT = ("{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{% for c in m.tool_calls %}"
           "{{ 'a' + c.function.arguments }}{% endfor %}{% endfor %}")


@pytest.mark.parametrize(("source", "shown"), [(AS_JSON, '{"city": "Oslo"}'), (AS_TEXT, 'a{"city": "Oslo"}')])
def test_arguments_come_as_the_template_wants_them(source: str, shown: str) -> None:
    assert ChatTemplate(source).render(talk('{"city": "Oslo"}')) == shown
    assert '"name": "look"' in ChatTemplate(source).render(talk("{}"), tools=[TOOL])


@pytest.mark.parametrize(("arguments", "shown"), [("", "{}"), ('{"a": ', '"{\\"a\\": "'), ("[1]", '"[1]"')])
def test_arguments_that_are_no_object(arguments: str, shown: str) -> None:
    assert ChatTemplate(AS_JSON).render(talk(arguments)) == shown


def test_a_template_that_knows_no_tools_gets_words() -> None:
    source = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
    text = ChatTemplate(source).render(talk('{"city": "Oslo"}'), tools=[TOOL])
    system, user, assistant, result, _ = text.split("\n[")[0], *text.split("\n[")[1:], ""
    assert system.startswith("[system]You can call functions.")
    assert '{"name": "look", "parameters": {"type": "object"}}' in system
    assert user == "user]hi"
    assert assistant == 'assistant]{"name": "look", "arguments": {"city": "Oslo"}}'
    assert result.strip() == "user]look returned: sunny"
    own = [{"role": "system", "content": "Be brief."}, *talk("{}")]
    assert ChatTemplate(source).render(own, tools=[TOOL]).startswith("[system]Be brief.\n\nYou can call")


@pytest.mark.parametrize("calls", [[1], [{}], [{"function": {"name": "f"}}],
                                   [{"function": {"name": 1, "arguments": ""}}]])
def test_calls_must_be_whole(calls: list[Any]) -> None:
    with pytest.raises(RequestError, match=r"messages\[0\]\.tool_calls\[0\]\.function"):
        ChatTemplate("x").render([{"role": "assistant", "content": "", "tool_calls": calls}])
