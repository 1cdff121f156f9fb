"""A mixer the package does not know, defined here: it loads, is checked, recorded, and serves requests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from drut import SamplingParams
from drut.config import EngineConfig
from drut.engine.build import build_engine, choose_backend
from drut.errors import UnsupportedError
from drut.kernels.ops import Buffer, Normalize
from drut.model.mixers.attention import AttentionMixer
from drut.model.model import open_model
from drut.model.part import Mixer, Outline, Scope, Shapes
from drut.model.rules import Rules
from drut.model.spec import check
from tests.golden.weights import write_checkpoint


@dataclass(frozen=True)
class Pass(Mixer):
    """Hands norm(x) to `o` as it is, and keeps nothing of a token."""

    before: AttentionMixer  # whose tensors are stored, and left unused
    kind = "pass"

    def shapes(self, hidden: int) -> Shapes:
        return self.before.shapes(hidden)

    def check(self, rules: Rules) -> None:
        rules.demand(self.before.q_width % 32 == 0, "its width is odd")

    def record(self, scope: Scope) -> Buffer:
        out = Buffer("mixed", self.before.q_width)
        assert scope.kv is None
        scope.recorder.add(Normalize(scope.index, scope.x, scope.norm("attn_norm"), out))
        return out

    def outline(self) -> Outline:
        return Outline(self.kind)


@pytest.mark.parametrize("backend", ["numpy", "auto"])
def test_a_layer_without_attention_serves_requests(backend: str, tmp_path: Path) -> None:
    files = open_model(write_checkpoint("llama_tied", tmp_path / "llama_tied"))
    first, *others = files.spec.layers
    assert isinstance(first.mixer, AttentionMixer)
    assert first.mixer.q_width == files.spec.hidden
    spec = check(replace(files.spec, layers=(replace(first, mixer=Pass(first.mixer)), *others)), "toy")
    assert len(spec.ropes) == 1
    config = EngineConfig(backend=backend, kv_dtype="fp32", threads=1)
    tokens = []
    for made in (replace(files, spec=spec), files):
        engine = build_engine(made, choose_backend(config), config, None)
        (request,) = engine.submit([1, 2, 3, 4], SamplingParams(max_tokens=12, ignore_eos=True, temperature=0))
        while engine.busy:
            engine.step()
        assert request.finish_reason == "length"
        tokens.append(request.output_ids)
        engine.check_idle()
        engine.close()
    assert tokens[0] != tokens[1]
    assert engine.cache.pool.memory.page_bytes > 0


def test_its_own_check_refuses_it() -> None:
    with pytest.raises(UnsupportedError, match="toy: its width is odd"):
        Pass(AttentionMixer(1, 1, 16, None, 1.0)).check(Rules("toy"))
