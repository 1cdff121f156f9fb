"""Golden digests of what published chat templates make of conversations, rendered by `transformers`.

    python tests/golden/make_templates.py --write    write templates.json beside this file
    python tests/golden/make_templates.py --check    render and compare; exit code 1 if a digest differs

Needs transformers, and Drut's own dependencies; what it writes is read without transformers. Which form a call's
arguments need, and whether a template knows calls or system messages, is found out here by trying it in transformers.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import logging
import sys
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock

from jinja2 import nodes
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
from tests.llama_sources import chat_templates
from tests.model.conversations import BOS, CONVERSATIONS, EOS, Conversation, as_sent, prepared

GOLDEN = Path(__file__).with_name("templates.json")
TODAY = datetime(2026, 2, 3, 4, 5, 6)
VOCABULARY = models.WordLevel({BOS: 0, EOS: 1}, unk_token=BOS)
TOKENIZER = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(VOCABULARY), bos_token=BOS, eos_token=EOS)
PROBED = CONVERSATIONS["called, said"]


class Today(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        return TODAY


def render(source: str, conversation: Conversation, messages: list[dict[str, Any]], *, tools: bool) -> str | None:
    """The text; None where the template, or transformers, refuses."""
    try:
        text = TOKENIZER.apply_chat_template(
            copy.deepcopy(messages), chat_template=source, tokenize=False,
            continue_final_message=conversation.continues, tools=(conversation.tools or None) if tools else None,
            add_generation_prompt=conversation.prompt and not conversation.continues, **conversation.variables)
    except Exception:
        return None
    return str(text)


class Template:
    """A source, and what it turns out to know."""

    def __init__(self, source: str) -> None:
        self.source = source
        tree = chat_template_utils._compile_jinja_template(source).environment.parse(source)
        self.reads_tools = any(name.name == "tools" for name in tree.find_all(nodes.Name))
        self.as_objects = self._shows(PROBED.messages) or not self._shows(as_sent(PROBED.messages))
        untold = Conversation(PROBED.messages)
        shown = render(source, untold, self._in_form(PROBED.messages), tools=False) or ""
        self.shows_calls = "Oslo" in shown.replace("Weather in Oslo?", "") and "5 degrees" in shown
        self.takes_system = "Be brief." in (self.text(CONVERSATIONS["system"], CONVERSATIONS["system"].messages) or "")

    def _shows(self, messages: list[dict[str, Any]]) -> bool:
        text = self.text(PROBED, messages) or ""
        return "Oslo" in text.replace("Weather in Oslo?", "") and "{'city': 'Oslo'" not in text

    def _in_form(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return messages if self.as_objects else as_sent(messages)

    def text(self, conversation: Conversation, messages: list[dict[str, Any]]) -> str | None:
        return render(self.source, conversation, messages, tools=self.reads_tools)

    def golden(self, conversation: Conversation) -> str | None:
        messages = prepared(conversation, self.source, reads_tools=self.reads_tools, shows_calls=self.shows_calls,
                            takes_system=self.takes_system)
        text = self.text(conversation, self._in_form(messages))
        return None if text is None else hashlib.sha256(text.encode()).hexdigest()[:16]


def main() -> int:
    parser = argparse.ArgumentParser()
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--write", action="store_true")
    how.add_argument("--check", action="store_true")
    args = parser.parse_args()
    logging.disable()
    with mock.patch.object(chat_template_utils, "datetime", Today):
        made = {name: {key: template.golden(each) for key, each in CONVERSATIONS.items()}
                for name, source in chat_templates().items() for template in [Template(source)]}
    if args.write:
        GOLDEN.write_text(json.dumps(made, indent=0) + "\n", encoding="utf-8")
        return 0
    known = json.loads(GOLDEN.read_text(encoding="utf-8"))
    wrong = {name for name in made.keys() | known.keys() if made.get(name) != known.get(name)}
    print("\n".join(sorted(wrong)) or f"{len(made)} templates: as they were")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
