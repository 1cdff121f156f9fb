from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest

from drut.errors import DownloadError, ModelFileError, RequestError
from drut.model.store import model_digest, pull, resolve, silent
from drut.model.store.reference import HubModel, parse_reference
from drut.model.weights.safetensors import open_safetensors
from tests.model.fake_hub import REPO, FakeHub, serving
from tests.model.test_safetensors import F32, entry, packed

WEIGHTS = packed({"a": entry()}, F32)
SINGLE = {
    "config.json": b"{}", "tokenizer.json": b'{"version": "1.0"}', "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"pickle", "model.pt": b"pickle", "README.md": b"hello", "training.log": b"no",
    "additional_chat_templates/tool_use.jinja": b"{{ tools }}", "additional_chat_templates/x/y.jinja": b"",
    "sub/model.safetensors": WEIGHTS, "consolidated.safetensors": WEIGHTS,
}  # fmt: skip
INDEX = json.dumps({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}).encode()
SHARDED = {
    "config.json": b"{}", "model.safetensors.index.json": INDEX, "m-1.safetensors": WEIGHTS,
    "m-2.safetensors": packed({"b": entry()}, F32), "m-3.safetensors": WEIGHTS,
}  # fmt: skip
GGUF = {"Q4/tiny [x].gguf": b"GGUF....", "other.gguf": b"GGUF"}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DRUT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "unused"))
    return tmp_path / "home"


@pytest.fixture
def hub(monkeypatch):
    pytest.importorskip("huggingface_hub")
    with serving(FakeHub(dict(SINGLE))) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


@pytest.fixture
def offline(monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused at once
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        yield


def names(path: Path) -> set[str]:
    return {p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()}


def test_references():
    assert parse_reference("hf:org/repo") == HubModel("org/repo", "main", None)
    full = HubModel("org/repo", "refs/pr/1", "Q4/x.gguf")
    assert parse_reference("hf:org/repo@refs/pr/1:Q4/x.gguf") == full
    assert str(full) == "hf:org/repo@refs/pr/1:Q4/x.gguf"


@pytest.mark.parametrize(
    "reference",
    ["hf:", "hf:org", "hf:../..", "hf:org/repo@", "hf:org/repo@../x", "hf:org/repo:../x.gguf",
     "hf:o/r:/x.gguf", "hf:org/repo:model.bin", "hf:org/repo/sub", "hf:org/repo\n"],
)  # fmt: skip
def test_malformed_references_are_named(reference):
    with pytest.raises(RequestError, match="expected hf:ORG/REPO"):
        resolve(reference, progress=silent)


def test_a_repository_with_one_file_of_weights(hub):
    path = resolve(f"hf:{REPO}", progress=silent)
    assert names(path) == {"config.json", "tokenizer.json", "model.safetensors", "README.md",
                           "additional_chat_templates/tool_use.jinja"}
    assert list(open_safetensors(path).tensors) == ["a"]
    assert not [r for r in hub.requests if r.endswith((".bin", ".pt"))]


def test_shards_are_those_of_the_index(hub):
    hub.files = dict(SHARDED)
    path = resolve(f"hf:{REPO}@main", progress=silent)
    assert names(path) == SHARDED.keys() - {"m-3.safetensors"}
    assert list(open_safetensors(path).tensors) == ["a", "b"]


def test_one_gguf_file(hub):
    hub.files = dict(GGUF)
    path = resolve(f"hf:{REPO}:Q4/tiny [x].gguf", progress=silent)
    assert path.read_bytes() == b"GGUF...."
    assert names(path.parent.parent) == {"Q4/tiny [x].gguf"}


def test_cached_needs_no_network(hub):
    path = resolve(f"hf:{REPO}", progress=silent)
    hub.requests.clear()
    assert resolve(f"hf:{REPO}", progress=silent) == path
    assert resolve(f"hf:{REPO}@{hub.commit}", progress=silent) == path
    assert hub.requests == []


def test_pull_follows_the_branch(hub):
    old = pull(f"hf:{REPO}", progress=silent)
    hub.commit, hub.files["config.json"] = "b" * 40, b'{"new": 1}'
    assert resolve(f"hf:{REPO}", progress=silent) == old
    new = pull(f"hf:{REPO}", progress=silent)
    assert (new / "config.json").read_bytes() == b'{"new": 1}'
    assert (old / "config.json").read_bytes() == b"{}"
    assert resolve(f"hf:{REPO}", progress=silent) == new


def test_pull_offline_keeps_what_is_there(hub, request):
    path = pull(f"hf:{REPO}", progress=silent)
    request.getfixturevalue("offline")
    assert pull(f"hf:{REPO}", progress=silent) == path
    with pytest.raises(DownloadError, match="hf:org/other: the hub cannot be reached"):
        pull("hf:org/other", progress=silent)


def test_a_repository_that_is_not_there(hub):
    with pytest.raises(DownloadError, match="hf:org/gone: the hub refused: 404"):
        resolve("hf:org/gone", progress=silent)


def test_what_cannot_be_read_is_refused(hub):
    del hub.files["config.json"]
    with pytest.raises(ModelFileError, match=r"no config\.json with safetensors weights$"):
        resolve(f"hf:{REPO}", progress=silent)
    hub.files = dict(GGUF)
    with pytest.raises(ModelFileError, match=r"its GGUF files \(append one after a colon\): Q4/tiny"):
        resolve(f"hf:{REPO}", progress=silent)
    with pytest.raises(ModelFileError, match="no such file"):
        resolve(f"hf:{REPO}:gone.gguf", progress=silent)
    hub.files = {name: data for name, data in SHARDED.items() if name != "m-2.safetensors"}
    with pytest.raises(ModelFileError, match=r"lacks the shard 'm-2\.safetensors'"):
        resolve(f"hf:{REPO}", progress=silent)


@pytest.mark.parametrize(
    ("arrives", "words"),
    [(WEIGHTS[:-1], "pull again"), (WEIGHTS[:-1] + b"x", "SHA-256 of model.safetensors")],
    ids=["cut", "changed"],
)
def test_a_wrong_download_is_no_model(hub, home, arrives, words):
    hub.served["model.safetensors"] = arrives
    with pytest.raises(DownloadError) as caught:
        resolve(f"hf:{REPO}", progress=silent)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    finished = [p for p in (home / "models").rglob("model.safetensors") if ".partial" not in str(p)]
    assert finished == []
    hub.served.clear()
    assert (resolve(f"hf:{REPO}", progress=silent) / "model.safetensors").read_bytes() == WEIGHTS


def test_the_digest_is_that_of_the_same_files_elsewhere(hub):
    path = resolve(f"hf:{REPO}", progress=silent)
    digest = model_digest(path)
    copy = path.parent / "copy"
    copy.mkdir()
    for name in ("config.json", "model.safetensors"):
        (copy / name).write_bytes((path / name).read_bytes())
    assert model_digest(copy) == digest


def test_without_huggingface_hub_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DownloadError, match=r"drut\[hf\]"):
        resolve(f"hf:{REPO}", progress=silent)
