"""`python -m drut` is the command `drut`."""

from __future__ import annotations

from drut.cli.main import entry

if __name__ == "__main__":
    entry()
