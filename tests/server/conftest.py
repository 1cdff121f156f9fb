from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import tiny
from tests.engine.models import write_bytes_model
from tests.server.rig import Running, serving

CALLER = """{% if tools %}[T]{{ tools | tojson }}
{% endif %}{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}{% for c in m.tool_calls %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}
{% endfor %}[a]"""


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bytes_model(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="session")
def server(model_path: Path) -> Iterator[Running]:
    """Shared by all tests: whatever they do to it, it must go on."""
    with serving(model_path) as running:
        yield running


@pytest.fixture(scope="session")
def caller_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose template knows tools."""
    made = tmp_path_factory.mktemp("caller") / "caller.gguf"
    made.write_bytes(tiny.model(tokenizer__chat_template=CALLER, llama__context_length=1024))
    return made


@pytest.fixture(scope="session")
def caller(caller_path: Path) -> Iterator[Running]:
    with serving(caller_path, engine={"grammar_timeout_s": 60}) as running:
        yield running


@pytest.fixture(autouse=True)
def _lives(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test that used the shared server, nothing is open and a plain request is answered."""
    yield
    if "server" in request.fixturenames:
        running: Running = request.getfixturevalue("server")
        running.until_idle()
        running.assert_well()
