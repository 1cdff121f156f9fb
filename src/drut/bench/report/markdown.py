"""The summary of a run as Markdown. A void run is marked before any figure."""

from __future__ import annotations

from drut.bench.cost import describe
from drut.bench.render.columns import columns
from drut.bench.render.markdown import part_text, whole
from drut.bench.render.section import Part
from drut.bench.render.tables import plain
from drut.bench.report.sections import result as run
from drut.bench.report.sections.watched import resources, server_side
from drut.bench.result.schema import Result


def markdown(result: Result) -> str:
    """Returns the summary of one run."""
    settings = result.settings
    parts: list[Part | None] = [
        *run.verdicts(result), run.latencies(result), run.rates(result), *run.errors(result), *run.certainty(result),
        server_side(result.watched), resources(result.watched)]
    texts = [f"# {plain(str(settings.get('model', '')))} at {plain(str(settings.get('url', '')))}",
             *(part_text(part, captions=False) for part in parts if part is not None), _cost(result), _plots(result),
             _about(result)]
    return whole(texts)


def _cost(result: Result) -> str:
    return "" if result.cost is None else "Cost\n\n```\n" + describe(result.cost) + "\n```"


def _plots(result: Result) -> str:
    series = result.series
    if not series.in_flight:
        return ""
    return ("```\noutput tokens in each second\n" + columns(series.output_tokens)
            + "\nrequests in flight\n" + columns(series.in_flight) + "\n```")


def _about(result: Result) -> str:
    env = result.environment
    return (f"drut {env.get('drut', '')} on {env.get('cpu', '')}, {env.get('cpus', '')} CPUs, event loop "
            f"{env.get('event_loop', '')}, {env.get('started', '')}. {run.client(result).text}")
