"""Markdown: the summary of a run, and any section of a report. A void run says so before any figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from drut.bench.cost import describe
from drut.bench.report.plot import columns
from drut.bench.report.schema import Result
from drut.bench.report.sections import result as run
from drut.bench.report.sections.section import Group, Note, Part, Section, Table
from drut.bench.report.sections.watched import resources, server_side
from drut.bench.report.tables import plain, printable, table


def markdown(result: Result) -> str:
    """The summary of one run."""
    settings = result.settings
    parts: list[Part | None] = [
        *run.verdicts(result), run.latencies(result), run.rates(result), *run.errors(result), *run.certainty(result),
        server_side(result.watched), resources(result.watched)]
    texts = [f"# {plain(str(settings.get('model', '')))} at {plain(str(settings.get('url', '')))}",
             *(_part(part, captions=False) for part in parts if part is not None), _cost(result), _plots(result),
             _about(result)]
    return _whole(texts)


def report(sections: Sequence[Section]) -> str:
    """A whole report, plots as the tables they were made of."""
    return _whole(text for section in sections for text in (
        f"# {plain(section.title)}", *(_part(part) for part in section.parts)))


def _whole(texts: Iterable[str]) -> str:
    text = "\n\n".join(text for text in texts if text)
    return "\n".join(map(printable, text.split("\n")))  # names too are what others wrote


def _part(part: Part, captions: bool = True) -> str:
    if isinstance(part, Note):
        text = f"**{plain(part.text)}**" if part.warning else plain(part.text)
        return text + ("\n\n" + "\n".join(f"- {plain(point)}" for point in part.points) if part.points else "")
    if isinstance(part, Group):
        texts = [f"## {plain(part.title)}", plain(part.text), *(_table(plot.twin) for plot in part.plots)]
        return "\n\n".join(text for text in texts if text)
    return _table(part, captions)


def _table(t: Table, captions: bool = True) -> str:
    text = table([plain(name) for name in t.head], [[plain(value) for value in row] for row in t.rows])
    return "\n\n".join(x for x in (f"### {plain(t.caption)}" if captions else "", text, plain(t.note)) if x)


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
