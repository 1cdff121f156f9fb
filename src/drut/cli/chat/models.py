"""The models that a chat can switch between: those of this machine, or those of a server."""

from __future__ import annotations

from typing import Protocol

from drut.cli.chat.conversation import Talker
from drut.cli.chat.local import LocalModel
from drut.cli.chat.remote import RemoteModel
from drut.cli.opening import open_llm
from drut.cli.terminal import note, on_terminal
from drut.config import EngineConfig
from drut.engine.llm import LLM
from drut.errors import RequestError, did_you_mean
from drut.model.store import resolve
from drut.model.store.disk import model_names


class Models(Protocol):
    """One open model, and the names of others. A context manager that closes the model."""

    @property
    def name(self) -> str:
        """The name of the open model."""
        ...

    @property
    def talker(self) -> Talker: ...

    def switch(self, name: str) -> None:
        """Opens another model instead. If that raises a DrutError, the old model is open."""
        ...

    def names(self) -> list[str]:
        """Returns names for `switch`, in order. Raises DrutError if a server does not list them."""
        ...

    def __enter__(self) -> Models: ...

    def __exit__(self, *_: object) -> None: ...


class LocalModels:
    """Models that are loaded in this process, one at a time."""

    def __init__(self, name: str, config: EngineConfig) -> None:
        """Loads the model `name`; raises DrutError if that fails."""
        self.name, self._config = name, config
        self._llm = self._load(name)
        self.talker: Talker = LocalModel(self._llm)

    def switch(self, name: str) -> None:
        """Order: the old model is closed before the new one is loaded, because both may not fit in memory."""
        resolve(name)
        self._llm.close()
        try:
            self._llm = self._load(name)
            self.name = name
        except BaseException:  # Ctrl-C too
            self._llm = self._load(self.name)
            raise
        finally:
            self.talker = LocalModel(self._llm)

    def names(self) -> list[str]:
        return model_names()

    def __enter__(self) -> LocalModels:
        return self

    def __exit__(self, *_: object) -> None:
        self._llm.close()

    def _load(self, name: str) -> LLM:
        return open_llm(name, self._config, announce=not on_terminal())


class RemoteModels:
    """The models of a server."""

    def __init__(self, url: str, name: str | None, api_key: str | None) -> None:
        """`name`: None for the first in the server's list. Raises RequestError for an invalid URL, RemoteError if the
        server does not answer."""
        self._model = RemoteModel(url, name, api_key)
        if not on_terminal():
            note(f"{self.name} at {self._model.url}")

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def talker(self) -> Talker:
        return self._model

    def switch(self, name: str) -> None:
        names = self.names()
        if name not in names:
            raise RequestError(f"{self._model.url} serves no model {name!r}{did_you_mean(name, names)}")
        self._model.name = name

    def names(self) -> list[str]:
        return self._model.names()

    def __enter__(self) -> RemoteModels:
        return self

    def __exit__(self, *_: object) -> None:
        """The connections of a server end with their requests."""
