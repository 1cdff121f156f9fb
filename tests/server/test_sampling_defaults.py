"""Sampling defaults over HTTP: a request's field, then a flag of the server, then the model's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli import tiny
from tests.server.rig import Running, serving


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    path.write_bytes(tiny.model(general__sampling__temp=0.0, general__sampling__top_k=7))
    with serving(path, top_k=9, min_p=0.25) as made:
        yield made


def test_models_shows_what_counts(running: Running) -> None:
    (card,) = running.get("/v1/models").json["data"]
    assert card["sampling_defaults"] == {"temperature": 0.0, "top_p": 1.0, "top_k": 9, "min_p": 0.25,
                                         "repetition_penalty": 1.0}


def test_a_request_without_a_temperature_has_the_models_and_one_with_a_temperature_its_own(running: Running) -> None:
    def texts(**fields: object) -> set[str]:
        reply = running.complete("hello", max_tokens=12, n=4, ignore_eos=True, **fields)
        return {choice["text"] for choice in reply.json["choices"]}

    assert len(texts()) == 1
    assert len(texts(temperature=5, min_p=0, top_k=0, seed=1)) > 1
