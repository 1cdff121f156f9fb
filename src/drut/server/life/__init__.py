"""Whether the server lives and can answer."""

from drut.server.life.health import Health as Health
