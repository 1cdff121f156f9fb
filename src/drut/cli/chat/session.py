"""A chat: a conversation with a model, its settings, and the screen that shows it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Protocol

from drut.cli.chat import saved
from drut.cli.chat.conversation import Conversation
from drut.cli.chat.interrupt import Interrupt
from drut.cli.chat.models import Models
from drut.cli.chat.settings import ChatSettings
from drut.engine.request.output import Completion
from drut.errors import DrutError, RequestError
from drut.parse.deltas import Content, Reasoning


class AnswerView(Protocol):
    """Shows one answer as it comes. Control characters of its text reach no terminal."""

    def content(self, text: str) -> None: ...

    def reasoning(self, text: str) -> None: ...

    def refresh(self) -> None:
        """Is called often, also if nothing comes."""
        ...


class Screen(Protocol):
    """Where a chat is shown."""

    def note(self, text: str) -> None: ...

    def confirm(self, question: str) -> bool: ...

    def clear(self) -> None: ...

    def answering(self) -> contextlib.AbstractContextManager[Interrupt]:
        """Returns a context in which Ctrl-C sets the flag."""
        ...

    def answer(self, settings: ChatSettings) -> contextlib.AbstractContextManager[AnswerView]: ...

    def finished(self, answer: Completion) -> None:
        """Is called after a complete answer."""
        ...


class Chat:
    """The operations on a chat."""

    def __init__(self, models: Models, settings: ChatSettings, screen: Screen, system: str | None = None) -> None:
        """Raises UnsupportedError or RequestError if the model cannot chat, or not with a system message."""
        self.models, self.settings, self.screen = models, settings, screen
        self.conversation = Conversation()
        self._unanswered: str | None = None  # the last message, if it has no answer
        self.instruct(system)

    def instruct(self, system: str | None) -> None:
        """Sets the system message, unless the chat template refuses it."""
        self.models.talker.encode_chat(Conversation(system).messages("?"))
        self.conversation.system = system

    def switch(self, name: str) -> None:
        """Continues with another model. If that cannot be opened or cannot chat, the old model is open."""
        before = self.models.name
        self.models.switch(name)
        try:
            self.instruct(self.conversation.system)
        except DrutError:
            self.models.switch(before)
            raise

    def say(self, question: str) -> None:
        """Shows the answer to `question`, and adds both to the conversation."""
        self._unanswered = question
        forgotten = self.conversation.fit(question, self.models.talker, self.settings.params.max_tokens)
        if forgotten:
            turns = "turn is" if forgotten == 1 else f"{forgotten} turns are"
            room = self.models.talker.room
            self.screen.note(f"the oldest {turns} forgotten: the conversation no longer fits {room} tokens")
        with self.screen.answering() as interrupt:
            answer, done = self._stream(question, interrupt)
        if answer:
            self._unanswered = None
        self.conversation.add(question, answer)
        if done is not None:
            self.screen.finished(done)

    def retry(self) -> None:
        """Answers the last message again. If that fails, the answer before stays in the conversation."""
        turns = self.conversation.turns
        if self._unanswered is not None:
            self.say(self._unanswered)
            return
        if not turns:
            raise RequestError("there is no message to answer again")
        last = turns.pop()
        try:
            self.say(last[0])
        finally:
            if self._unanswered is not None:
                self._unanswered = None
                self.conversation.turns.append(last)

    def clear(self) -> None:
        """Removes all turns, and clears the screen."""
        self.conversation.turns.clear()
        self._unanswered = None
        self.screen.clear()

    def save(self, path: Path) -> None:
        """Writes the chat to a file; asks before it replaces one."""
        if path.exists() and not self.screen.confirm(f"{path} exists. Replace it?"):
            raise RequestError(f"{path} exists and stays as it is")
        saved.save(path, self.conversation, self.settings, self.models.name)

    def load(self, path: Path) -> None:
        """Continues a saved chat, with the open model. If that fails, nothing changes."""
        conversation, settings = saved.load(path, self.settings)
        self.models.talker.encode_chat(conversation.messages("?"))
        self.conversation, self.settings, self._unanswered = conversation, settings, None

    def _stream(self, question: str, interrupt: Interrupt) -> tuple[str, Completion | None]:
        """Shows the answer. Returns it without reasoning, and its completion if it is complete."""
        messages, shown, done = self.conversation.messages(question), [], None
        stream = self.models.talker.stream(messages, self.settings.params, interrupt)
        with self.screen.answer(self.settings) as view, contextlib.closing(stream) as parts:
            for part in parts:
                for delta in part.deltas:
                    if isinstance(delta, Content):
                        shown.append(delta.text)
                        view.content(delta.text)
                    elif isinstance(delta, Reasoning):
                        view.reasoning(delta.text)
                view.refresh()
                done = part.completion
        return "".join(shown), done
