"""Plots of characters, for terminals and Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def columns(values: Sequence[float], height: int = 5, width: int = 72) -> str:
    """Returns columns from 0 up, one for each value; neighbours are averaged if there are more than `width` values."""
    if not values:
        return ""
    parts = np.array_split(np.asarray(values, np.float64), min(width, len(values)))
    means = [float(part.mean()) for part in parts]
    top = max(means) or 1.0
    filled = [round(max(mean, 0.0) / top * 8 * height) for mean in means]
    label = f"{top:.4g}"
    lines = []
    for row in range(height - 1, -1, -1):
        cells = "".join(_EIGHTHS[min(max(fill - 8 * row, 0), 8)] for fill in filled)
        lines.append(f"{label if row == height - 1 else '0' if row == 0 else '':>{len(label)}} |{cells.rstrip()}")
    return "\n".join(lines)
