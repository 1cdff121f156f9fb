"""The model that a server has, by its `/v1/models`."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import msgspec

from drut.bench.address import shown
from drut.bench.exchange import ToolExchange
from drut.errors import RequestError

TIMEOUT_S = 10.0
LOADING = 503
_MAX_NAMES = 12


class ServedModel(msgspec.Struct):
    """One model of a server."""

    id: str


class ServedModels(msgspec.Struct):
    """The reply of `/v1/models`."""

    data: list[ServedModel]


def served_model(url: str, headers: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None) -> str:
    """Returns the name of the server's only model. Raises RequestError if it has several, with their names, or if it
    does not name any."""
    exchange = ToolExchange(url, headers, TIMEOUT_S, tls)
    try:
        status, data = exchange.send("/v1/models")
    except RequestError as error:
        raise RequestError(f"cannot read the model's name from the server (give --model?): {error}") from None
    finally:
        exchange.close()
    try:
        if status != 200:
            raise RequestError(f"/v1/models answered {status}{' (is it still loading?)' * (status == LOADING)}")
        names = [model.id for model in msgspec.json.decode(data, type=ServedModels).data]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, RequestError) as error:
        raise RequestError(f"--model is needed: {shown(url)} does not name its models: {error}") from None
    if len(names) != 1:
        known = ", ".join(names[:_MAX_NAMES]) + ", ..." * (len(names) > _MAX_NAMES)
        raise RequestError(f"--model is needed: {shown(url)} has {len(names)} models{': ' * bool(names)}{known}")
    return names[0]
