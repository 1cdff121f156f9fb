from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A run started in the background inherits interrupts that are ignored, and tests of Ctrl-C send them."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
