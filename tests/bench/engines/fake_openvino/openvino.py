"""As much of OpenVINO as the wrapper takes."""

from __future__ import annotations

from typing import Any


class Tensor:
    def __init__(self, data: Any) -> None:
        self.data = data
