"""A dialect the server does not know, defined here: its own forms, framing, media type and errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest

from drut.engine.request.params import FilledParams
from drut.model.tokenizer import Tokenizer
from drut.server.http import app
from drut.server.openai.protocol.errors import ApiError
from drut.server.openai.render.parts import parts
from drut.server.openai.routes.generate import Generation
from drut.server.service import Loaded, Service
from drut.server.stream.assembler import Assembler, TextPiece
from drut.server.stream.prepared_request import PreparedRequest
from tests.server.rig import Running, serving


class Ask(msgspec.Struct):
    say: str
    many: int = 8
    live: bool = True


class Bit(msgspec.Struct):
    bit: str
    over: bool


class LineWire:
    """A JSON value a line."""

    media_type = b"application/x-ndjson"
    keep_alive = b"\n"

    def frame(self, event: msgspec.Struct) -> Iterator[bytes]:
        yield from parts(event)
        yield b"\n"

    def end(self) -> bytes:
        return b""

    def error_frame(self, error: ApiError) -> bytes:
        return self.error_body(error) + b"\n"

    def error_body(self, error: ApiError) -> bytes:
        return msgspec.json.encode({"sorry": str(error)})


def prepare(body: bytes, service: Service, loaded: Loaded, caller: str) -> PreparedRequest:
    ask = msgspec.json.decode(body, type=Ask)
    if not ask.say:
        raise ApiError(400, "say is empty")
    return PreparedRequest(id="toy", model=service.name, fingerprint=loaded.fingerprint, stream=ask.live,
                           prompts=[loaded.texts.prompt(ask.say)],
                           params=FilledParams(max_tokens=ask.many, temperature=0, ignore_eos=True))


class ToyDialect:
    def __init__(self, job: PreparedRequest, assembler: Assembler, tokenizer: Tokenizer | None) -> None:
        pass

    def events(self, piece: TextPiece) -> Iterator[Bit]:
        yield Bit(piece.text, piece.end is not None)

    def usage_event(self) -> Bit:
        raise AssertionError("it has no usage")

    def reply(self, pieces: Sequence[TextPiece]) -> Bit:
        return Bit(pieces[0].text, True)


@pytest.fixture(scope="module")
def toy(model_path: Path) -> Iterator[Running]:
    more = {**app.GENERATIONS, "/toy": Generation(prepare, ToyDialect, LineWire())}
    with patch.object(app, "GENERATIONS", more), serving(model_path) as running:
        yield running


def test_it_answers_in_its_own_form(toy: Running) -> None:
    whole = toy.post("/v1/toy", {"say": "hello", "live": False})
    assert (whole.status, whole.headers["content-type"]) == (200, "application/json")
    streamed = toy.post("/v1/toy", {"say": "hello"})
    assert streamed.headers["content-type"] == "application/x-ndjson"
    bits = [json.loads(line) for line in streamed.raw.splitlines() if line]
    assert "".join(bit["bit"] for bit in bits) == whole.json["bit"] == toy.complete(
        "hello", max_tokens=8, ignore_eos=True, temperature=0).json["choices"][0]["text"]
    assert [bit["over"] for bit in bits] == [False] * (len(bits) - 1) + [True]


def test_its_errors_have_its_shape_and_no_other_route_has(toy: Running) -> None:
    refused = toy.post("/v1/toy", {"say": ""})
    assert (refused.status, refused.json) == (400, {"sorry": "say is empty"})
    assert toy.post("/v1/completions", {"prompt": ""}).error["type"] == "invalid_request_error"
    toy.assert_well()
