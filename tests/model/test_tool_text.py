"""Tools in a prompt, in the form that each template wants."""

from __future__ import annotations

from typing import Any

import pytest

from drut.errors import RequestError
from drut.model.template.template import ChatTemplate

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


AS_ITEMS = ("{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{% for c in m.tool_calls %}"
            "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}{% endfor %}{% endfor %}")


@pytest.mark.parametrize("arguments", ['["Oslo"]', '"Oslo"', "{broken"])
def test_arguments_that_a_template_cannot_show_are_named(arguments: str) -> None:
    template = ChatTemplate(AS_ITEMS)
    assert template.render(talk('{"city": "Oslo"}')) == "city=Oslo"
    with pytest.raises(RequestError, match="must be the text of a JSON object") as caught:
        template.render(talk(arguments))
    assert caught.value.field == "messages[1].tool_calls[0].function.arguments"
    other = ChatTemplate("{{ raise_exception('no') }}" + AS_ITEMS)
    with pytest.raises(RequestError, match="chat template: no"):
        other.render(talk(arguments))


@pytest.mark.parametrize("written", ["{{ c.function.arguments }}", "{{ c.function.arguments | string }}"])
def test_an_object_that_would_come_out_as_python_writes_it_is_given_as_text(written: str) -> None:
    source = AS_ITEMS.partition("{% for k")[0] + written + "{% endfor %}{% endfor %}"
    assert ChatTemplate(source).render(talk('{"city":"Oslo"}')) == '{"city":"Oslo"}'


def test_a_template_that_refuses_system_messages_has_the_tools_in_the_users_first() -> None:
    source = ("{% for m in messages %}{% if m.role == 'system' or (m.role == 'user') != (loop.index0 % 2 == 0) %}"
              "{{ raise_exception('no') }}{% endif %}[{{ m.role }}]{{ m.content }}\n{% endfor %}")
    talked = talk('{"city": "Oslo"}')
    talked[1]["tool_calls"] *= 2
    text = ChatTemplate(source).render([*talked, talked[2]], tools=[TOOL])
    assert text.startswith("[user]You can call functions.")
    assert text.endswith('\n\nhi\n[assistant]{"name": "look", "arguments": {"city": "Oslo"}}\n{"name": "look", '
                         '"arguments": {"city": "Oslo"}}\n[user]look returned: sunny\nlook returned: sunny\n')
    with pytest.raises(RequestError, match="no"):
        ChatTemplate(source).render([{"role": "system", "content": "x"}, *talked], tools=[TOOL])


def test_a_template_that_knows_calls_and_no_tools_shows_calls_where_no_tools_are_offered() -> None:
    source = ("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls %}<call>"
              "{{ c.function.arguments }}{% endfor %}{% endfor %}")
    assert ChatTemplate(source).render(talk("{}")) == "[user]hi[assistant]<call>{}[tool]sunny"
    assert "[user]look returned: sunny" in ChatTemplate(source).render(talk("{}"), tools=[TOOL])


def test_what_an_assistant_thought_comes_under_both_its_names() -> None:
    thought = [{"role": "assistant", "reasoning_content": "Hm."}]
    assert ChatTemplate("{{ messages[0].thinking }}|{{ messages[0].reasoning_content }}").render(thought) == "Hm.|Hm."


@pytest.mark.parametrize("calls", [[1], [{}], [{"function": {"name": "f"}}],
                                   [{"function": {"name": 1, "arguments": ""}}]])
def test_calls_must_be_whole(calls: list[Any]) -> None:
    with pytest.raises(RequestError, match=r"messages\[0\]\.tool_calls\[0\]\.function"):
        ChatTemplate("x").render([{"role": "assistant", "content": "", "tool_calls": calls}])
