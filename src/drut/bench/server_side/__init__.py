"""The server's own metrics of a run, under the same names for every engine."""

from drut.bench.server_side.summary import GaugeLevel, ScrapedDistribution, ServerSide, Total
from drut.bench.server_side.watch import ServerWatch

__all__ = ["GaugeLevel", "ScrapedDistribution", "ServerSide", "ServerWatch", "Total"]
