"""Published chat templates: a conversation becomes the text that transformers makes of it, or both refuse it."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from pathlib import Path

import pytest

from drut.errors import RequestError
from drut.model.template import template as module
from drut.model.template.template import ChatTemplate
from tests.llama_sources import chat_templates
from tests.model.conversations import BOS, CONVERSATIONS, EOS, Conversation, as_sent

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "templates.json").read_text(encoding="utf-8"))


class Today(datetime):
    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
        return datetime(2026, 2, 3, 4, 5, 6)


def rendered(template: ChatTemplate, conversation: Conversation) -> str | None:
    """A digest of the text; None where it is refused."""
    known = {name: value for name, value in conversation.variables.items() if name in template.variables}
    try:
        text = template.render(as_sent(conversation.messages), tools=conversation.tools, variables=known,
                               add_generation_prompt=conversation.prompt, continue_final=conversation.continues)
    except RequestError:
        return None
    return digest(text)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.model
def test_every_conversation_becomes_the_text_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "datetime", Today)
    sources = chat_templates()
    assert sources.keys() == GOLDEN.keys()
    assert len(GOLDEN) == 70
    wrong = []
    for name, source in sources.items():
        template = ChatTemplate(source, bos_token=BOS, eos_token=EOS)
        wrong += [f"{name}: {key}" for key, conversation in CONVERSATIONS.items()
                  if rendered(template, conversation) != GOLDEN[name][key]]
    assert not wrong
