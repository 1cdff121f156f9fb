"""Which layers of a model share pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drut.model.decoder import kv_layouts
from drut.model.model import open_model
from drut.model.spec import ModelSpec
from tests.golden.weights import write_checkpoint


def spec(name: str, directory: Path) -> ModelSpec:
    files = open_model(write_checkpoint(name, directory / name))
    files.close()
    return files.spec


@pytest.mark.parametrize(("name", "groups"), [
    ("qwen3_gqa", {0: (0, 1)}), ("mistral_window", {37: (0, 1)}), ("gemma2", {0: (1,), 33: (0, 2)}),
    ("gemma3", {0: (5,), 40: (0, 1, 2, 3, 4)}), ("gpt_oss", {0: (1, 3), 24: (0, 2)})])
def test_layers_that_see_as_far_are_a_group(name: str, groups: dict[int, tuple[int, ...]], tmp_path: Path) -> None:
    model = spec(name, tmp_path)
    layouts = kv_layouts(model, "bf16")
    assert {kv.window: kv.members for kv in layouts} == groups
    assert [kv.group for kv in layouts] == list(range(len(groups)))
    assert [kv.layers for kv in layouts] == [len(members) for members in groups.values()]
    for kv in layouts:
        assert [kv.offset(layer) for layer in kv.members] == [i * kv.layer_bytes for i in range(kv.layers)]
    (one,) = kv_layouts(model, "bf16", windows=False)
    assert (one.window, one.page_bytes) == (0, sum(kv.page_bytes for kv in layouts))
    assert [one.offset(layer) for layer in range(one.layers)] == [i * one.layer_bytes for i in range(one.layers)]


def test_a_window_as_long_as_the_context_hides_nothing(tmp_path: Path) -> None:
    model = spec("gemma2", tmp_path)
    assert [kv.window for kv in kv_layouts(model, "bf16", context=34)] == [0, 33]
    assert [kv.window for kv in kv_layouts(model, "bf16", context=33)] == [0]


@pytest.mark.parametrize("windows", [True, False])
def test_each_layer_has_pages_of_its_own_head_sizes(windows: bool, tmp_path: Path) -> None:
    model = spec("gemma2", tmp_path)
    first, second, third = model.layers
    changed = replace(model, layers=(first, replace(second, mixer=replace(second.mixer, kv_heads=1)),
                                     replace(third, mixer=replace(third.mixer, head_dim=16))))
    layouts = kv_layouts(changed, "bf16", windows=windows)
    assert sorted(layer for kv in layouts for layer in kv.members) == [0, 1, 2]
    for kv in layouts:
        for layer in kv.members:
            mixer = changed.layers[layer].mixer
            assert (kv.kv_heads, kv.head_dim) == (mixer.kv_heads, mixer.head_dim)
