"""The tables of docs/serving.md match the code."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from drut.config import EngineConfig
from drut.server.config import ServerConfig
from drut.server.metrics import METRICS

DOCS = Path(__file__).parents[2] / "docs"
CONFIGS = (ServerConfig, EngineConfig)


def rows(heading: str) -> list[str]:
    """The table's rows under a heading of the second level."""
    section = (DOCS / "serving.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    assert table, f"no table under {heading}"
    return table[2:]


def settings() -> list[str]:
    lines = []
    for config in CONFIGS:
        for f in dataclasses.fields(config):
            if f.metadata["flag"]:
                default = {True: "on", False: "off"}[f.default] if f.metadata["type"] is bool else f.default
                shown = "" if default is None else default
                env = f", `{f.metadata['env']}`" if f.metadata["env"] else ""
                lines.append(f"| `--{f.name.replace('_', '-')}`{env} | {shown} | {f.metadata['help']} |")
    return lines


def test_every_setting_is_listed_with_its_default() -> None:
    assert rows("Settings") == settings()


def test_every_metric_is_listed_with_its_kind_and_labels() -> None:
    assert rows("Metrics") == [
        f"| `{name}` | {m.kind} | {m.help}{''.join(f' (label `{label}`)' for label in m.labels)} |"
        for name, m in METRICS.items()]

