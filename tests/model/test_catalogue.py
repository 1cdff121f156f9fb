from __future__ import annotations

import re
from pathlib import Path

import pytest

from drut.bench.tokens import open_tokenizer
from drut.engine.llm import LLM
from drut.engine.request.params import SamplingParams
from drut.errors import DownloadError, ModelFileError, RequestError
from drut.model.store import entries, entry_of, pull, resolve, silent
from drut.model.store.known import KNOWN
from drut.model.store.reference import HubModel, parse_reference
from tests.cli import tiny
from tests.model.fake_hub import REPO, FakeHub, serving, sha256

GGUF = {"tiny.gguf": b"GGUF...."}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("DRUT_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "unused"))
    return tmp_path


@pytest.fixture
def hub(monkeypatch):
    pytest.importorskip("huggingface_hub")
    with serving(FakeHub(dict(GGUF))) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def test_every_packaged_entry_is_complete():
    assert len(entries()) == 12
    for entry in entries().values():
        assert re.fullmatch("[0-9a-f]{64}", entry.sha256), entry
        assert entry.bytes > 1e7
        assert entry.file.endswith(".gguf")
        assert all((entry.parameters, entry.licence, entry.quantization, entry.source.startswith("https://")))
        SamplingParams(**entry.sampling)
        if entry.name not in KNOWN:
            model = parse_reference(entry.name)
            assert model == HubModel(entry.repo, entry.revision, entry.file, entry.sha256)
            assert re.fullmatch("[0-9a-f]{40}", entry.revision), "a branch may change under its size and checksum"
    assert [entry.name for entry in entries().values() if entry.verified] == ["smollm2-135m-instruct"]


def test_a_user_s_file_adds_and_replaces(home):
    (home / "m.gguf").write_bytes(b"GGUF")
    (home / "models.toml").write_text(f'''
[mine]
path = "{home}/m.gguf"
sampling = {{ temperature = 0.5, top_k = 3 }}
[qwen3-4b]
repo = "org/other"
''')
    assert list(entries())[-1] == "mine"
    assert resolve("mine") == home / "m.gguf"
    assert entry_of("mine") is not None
    assert entry_of(home / "m.gguf").sampling == {"temperature": 0.5, "top_k": 3}
    assert entry_of(home / "other.gguf") is None
    assert parse_reference("qwen3-4b") == HubModel("org/other")
    (home / "m.gguf").unlink()
    assert entry_of(home / "m.gguf") is None
    with pytest.raises(ModelFileError, match=r"m\.gguf"):
        resolve("mine")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[a", "models.toml: "),
        ("a = 1", "models.toml: a is not a table; an entry starts with [a]"),
        ('["a/b"]\npath = "x"', "models.toml: ['a/b'] is no name"),
        ('[""]\npath = "x"', "models.toml: [''] is no name"),
        ("[a]", "models.toml: [a]: one of repo and path is needed"),
        ('[a]\nrepo = "o/r"\npath = "x"', "one of repo and path is needed"),
        ("[a]\nrepo = 3", "[a]: repo must be a string, not 3"),
        ('[a]\nrepo = "o/r"\nbytes = true', "[a]: bytes must be an integer, not True"),
        ('[a]\nrepo = "o/r"\nlicense = "MIT"', "[a]: unknown key 'license'; did you mean licence?"),
        ('[a]\nrepo = "o/r"\nsampling = { heat = 1 }', "[a]: sampling.heat = 1; it has numbers for temperature,"),
        ('[a]\nrepo = "o/r"\nsampling = { top_p = nan }', "sampling.top_p = nan"),
    ],
)
def test_a_user_s_file_with_a_mistake_is_named(home, text, words):
    (home / "models.toml").write_text(text)
    with pytest.raises(RequestError) as caught:
        entries()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_repository_that_leaves_its_folder_is_refused(home):
    (home / "models.toml").write_text('[a]\nrepo = "../../x"\nfile = "a.gguf"')
    with pytest.raises(RequestError, match="expected hf:ORG/REPO"):
        parse_reference("a")


def test_a_pull_takes_only_the_file_that_the_catalogue_describes(home, hub):
    entry = f'[a]\nrepo = "{REPO}"\nrevision = "{hub.commit}"\nfile = "tiny.gguf"\nsha256 = '
    (home / "models.toml").write_text(f'{entry}"{"0" * 64}"')
    with pytest.raises(DownloadError, match=rf"SHA-256 {sha256(GGUF['tiny.gguf'])}, the catalogue 0000"):
        pull("a", progress=silent)
    (home / "models.toml").write_text(f'{entry}"{sha256(GGUF["tiny.gguf"])}"')
    path = pull("a", progress=silent)
    assert path.read_bytes() == GGUF["tiny.gguf"]
    assert entry_of(path).name == "a"
    asked = len(hub.requests)
    assert resolve("a") == path
    assert len(hub.requests) == asked


def test_a_name_that_is_almost_right():
    with pytest.raises(ModelFileError, match="did you mean qwen3-4b"):
        resolve("qwen3:4b")


def test_a_client_tokenizes_with_a_model_of_the_catalogue_only_if_it_was_fetched(home):
    with pytest.raises(RequestError, match="qwen3-4b is not on this machine"):
        open_tokenizer("qwen3-4b", model="m")
    with pytest.raises(RequestError, match="no tokenizer for model 'qwen3-4b'"):
        open_tokenizer(model="qwen3-4b")
    (home / "m.gguf").write_bytes(tiny.model())
    (home / "models.toml").write_text(f'[mine]\npath = "{home}/m.gguf"\n')
    assert open_tokenizer(model="mine").count("abc") == 3


def test_a_path_needs_no_catalogue(home: Path) -> None:
    (home / "models.toml").write_text("[a")
    file = home / "m.gguf"
    file.write_bytes(tiny.model())
    assert resolve(str(file)) == file
    with pytest.warns(UserWarning, match=r"models\.toml: .*: it is ignored"), LLM(file, kv_cache_gb=0.01) as llm:
        assert llm.engine.intake.defaults == SamplingParams()
