"""A server that runs already, wherever it is."""

from __future__ import annotations

from drut.bench.address import Address, shown
from drut.bench.engines.engine import CannotRunError, Launch, ModelFiles, Options
from drut.errors import RequestError


class Url:
    """Measured as it is: nobody starts, holds or ends it, and its memory is not told.

    Flags: `URL [MODEL]`, or `MODEL` alone where the URL is the engine's name; the model's name to it is `files.name`
    where none is given.
    """

    name = "url"
    title = "A server that runs already"
    verified = True

    def __init__(self, url: str = "") -> None:
        self._url = url
        if url:
            self.name, self.title = url, shown(url)

    def launch(self, files: ModelFiles, options: Options, port: int) -> Launch:
        """`port` has no use. Raises CannotRunError where the URL is missing or none."""
        given = ([self._url] if self._url else []) + list(options.flags)
        if not given or len(given) > 2:
            raise CannotRunError("a server that runs already is given as URL [MODEL]")
        try:
            Address(given[0])
        except RequestError as error:
            raise CannotRunError(str(error)) from None
        model = given[1] if len(given) == 2 else files.name
        return Launch(given[0], model, ready="/v1/models",
                      remarks=("it ran already: it is not held while others are measured",))
