"""What a server's own metrics say of a run, in the same words for every engine."""

from drut.bench.server_side.summary import Distribution, Level, ServerSide, Total
from drut.bench.server_side.watch import ServerWatch

__all__ = ["Distribution", "Level", "ServerSide", "ServerWatch", "Total"]
