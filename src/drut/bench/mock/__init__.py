"""A scripted OpenAI-compatible server with known service times and known faults, to test clients."""

from drut.bench.mock.process import MockServer
from drut.bench.mock.script import Script, load_script, parse_script
from drut.bench.mock.server import serve_script
from drut.bench.mock.service import Served

__all__ = ["MockServer", "Script", "Served", "load_script", "parse_script", "serve_script"]
