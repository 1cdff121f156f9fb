"""A server that already runs, on this machine or another."""

from __future__ import annotations

from drut.bench.address import Address, shown
from drut.bench.engines.engine import CannotRunError, EngineFiles, Launch, Options
from drut.errors import RequestError


class Url:
    """A server that is measured as it is: it is not started, suspended or ended, and its memory is unknown.

    Flags: `URL [MODEL]`, or `MODEL` alone if the URL is the engine's name; without MODEL, the server's name of the
    model is `files.name`.
    """

    name = "url"
    title = "A server that already runs"
    verified = True

    def __init__(self, url: str = "") -> None:
        self._url = url
        if url:
            self.name, self.title = url, shown(url)

    def launch(self, files: EngineFiles, options: Options, port: int) -> Launch:
        """Ignores `port`. Raises CannotRunError if the URL is missing or invalid."""
        given = ([self._url] if self._url else []) + list(options.flags)
        if not given or len(given) > 2:
            raise CannotRunError("a server that already runs is given as URL [MODEL]")
        try:
            Address(given[0])
        except RequestError as error:
            raise CannotRunError(str(error)) from None
        model = given[1] if len(given) == 2 else files.name
        return Launch(given[0], model, ready="/v1/models",
                      remarks=("it already ran: it is not suspended while others are measured",))
