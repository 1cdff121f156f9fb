"""The watched metrics of a run."""

from __future__ import annotations

from drut.bench.render.section import Note, Table
from drut.bench.render.tables import cell
from drut.bench.resources import Resources
from drut.bench.server_side import ScrapedDistribution
from drut.bench.watch import Watched


def server_side(watched: Watched | None) -> Table | Note | None:
    """Returns the server's own metrics; if there are none, the reason."""
    server = watched.server if watched is not None else None
    if server is None:
        return None
    if not (server.distributions or server.totals or server.levels):
        return Note("No metrics of the server" + "".join(f"; {problem}" for problem in server.problems) + ".")
    rows = [[name, _bounds(d), f"mean {cell(d.mean_ms)} ms, {d.count} values"]
            for name, d in server.distributions.items()]
    rows += [[name, f"{cell(t.per_s)} /s", f"{cell(t.total)} in total"] for name, t in server.totals.items()]
    rows += [[name, f"mean {cell(level.mean)}", f"at most {cell(level.max)}"] for name, level in server.levels.items()]
    notes = " ".join(f"{name}: {note}." for name, note in server.notes.items())
    return Table("The server's own metrics", [f"by {server.engine}'s own metrics, {server.seconds:.0f} s", "", ""],
                 rows, notes)


def _bounds(d: ScrapedDistribution) -> str:
    low, high = d.percentiles_ms.get("p50", (0.0, None))
    return f"p50 in {cell(low)} .. {'more' if high is None else cell(high)} ms"


def resources(watched: Watched | None) -> Table | None:
    """Returns CPUs, memory, GPUs and energy of the run."""
    if watched is None:
        return None
    r: Resources = watched.resources
    rows = [["machine", f"{r.machine.busy_share:.0%} of {r.machine.cpus} CPUs busy"
             + ("" if r.machine.steal_share is None else f", {r.machine.steal_share:.1%} stolen by its host"), ""]]
    for name, use in (("load client", r.client), ("server", r.server)):
        if use is not None:
            rows.append([name, f"{use.cpus:.2f} CPUs", f"{use.peak_rss_bytes / 1e6:.0f} MB at most"])
    for gpu in r.gpus or ():
        power = "" if gpu.watts is None else f", {gpu.watts:.0f} W"
        rows.append([f"GPU {gpu.index}, {gpu.name}", f"{gpu.use_share:.0%} of the time in use{power}",
                     f"{gpu.peak_used_bytes / 1e9:.1f} GB at most"])
    for energy in r.energy or ():
        rows.append([energy.domain, f"{energy.watts:.1f} W", f"{energy.joules:.0f} J"])
    return Table("Resources", [f"resources, {r.seconds:.0f} s", "", ""], rows)
