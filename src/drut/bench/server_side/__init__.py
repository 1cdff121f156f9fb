"""The server's own metrics of a run, under the same names for every engine."""

from drut.bench.server_side.summary import Distribution, Level, ServerSide, Total
from drut.bench.server_side.watch import ServerWatch

__all__ = ["Distribution", "Level", "ServerSide", "ServerWatch", "Total"]
