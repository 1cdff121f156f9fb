"""What lets data become code, or a template run unbounded, is nowhere in the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "src"
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "yaml", "diskcache"}
CALLS = {"eval", "exec", "compile", "__import__"}
ATTRIBUTES = {"torch.load", "yaml.load", "yaml.unsafe_load", "numpy.load", "np.load", "os.system", "os.popen"}
PLAIN_JINJA = {"Environment", "Template", "NativeEnvironment", "SandboxedEnvironment"}


def offences(source: str) -> Iterator[str]:
    """Every banned import, call and name in a source."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (n.name for n in names if n.name.partition(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module), names=names):
                if module.partition(".")[0] in MODULES:
                    yield module
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                yield f"{name}()"
            case ast.Call(func=ast.Name(id=name)) | ast.ClassDef(bases=[ast.Name(id=name)]) if name in PLAIN_JINJA:
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Name(id="importlib"), attr="import_module"), args=[what]):
                if not _is_known_module(what):
                    yield "importlib.import_module()"
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)):
                if f"{owner}.{name}" in ATTRIBUTES or (owner == "jinja2" and name in PLAIN_JINJA):
                    yield f"{owner}.{name}()"
            case ast.keyword(arg="shell" | "allow_pickle" | "trust_remote_code", value=ast.Constant(value=True)):
                yield f"{node.arg}=True"


def _is_known_module(what: ast.expr) -> bool:
    """A name that stands in the source, or one of our own modules."""
    if isinstance(what, ast.JoinedStr):
        first = what.values[0]
        return isinstance(first, ast.Constant) and str(first.value).startswith("drut.")
    return isinstance(what, ast.Constant)


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCES)))
def test_nothing_banned(path: Path) -> None:
    assert list(offences(path.read_text())) == []


@pytest.mark.parametrize("source", [
    "import pickle", "from pickle import loads", "eval('1')", "exec(x)", "import torch\ntorch.load(f)", "import yaml",
    "Environment()", "class X(Template): pass", "import jinja2\njinja2.Template(x)",
    "SandboxedEnvironment(trim_blocks=True)", "importlib.import_module(f'{x}.drut.')",
    "subprocess.run(x, shell=True)", "np.load(f, allow_pickle=True)", "__import__(x)", "importlib.import_module(x)",
])  # fmt: skip
def test_the_ban_sees(source: str) -> None:
    assert list(offences(source))
