"""Start, health and shutdown of a server."""

from drut.server.life.health import Health as Health
from drut.server.life.lifecycle import Lifecycle as Lifecycle
from drut.server.life.log import RequestLog as RequestLog
from drut.server.life.startup import Startup as Startup
