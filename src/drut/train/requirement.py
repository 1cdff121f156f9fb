"""Training needs torch, which nothing else does: it is an extra, imported only by the modules that train."""

from __future__ import annotations

from importlib.util import find_spec

from drut.errors import DrutError

TORCH = "torch==2.13.0"  # as in the extra `train`


def check_torch() -> None:
    """Raises DrutError, with the command that installs torch, if there is none."""
    if find_spec("torch") is None:
        raise DrutError(f"training a drafter needs torch: pip install {TORCH}")
