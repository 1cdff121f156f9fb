"""Packs the JSON Schema test suite: `python -m tests.constrain.pack_suite DIRECTORY`, which holds `draft2020-12/`."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

PACKED = Path(__file__).parent / "data" / "json-schema-test-suite.json.gz"


def main(directory: Path) -> None:
    base = directory / "draft2020-12"
    files = sorted([*base.glob("*.json"), *base.glob("optional/format/*.json")])
    suite = {str(f.relative_to(base).with_suffix("")): json.loads(f.read_text()) for f in files}
    PACKED.write_bytes(gzip.compress(json.dumps(suite, separators=(",", ":")).encode(), 9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
