"""Builds the other engines, each in an environment of its own under build/peers/.

    python -m benchmarks.peers.build [NAME ...]

If an engine cannot be built, its name and the end of its log are printed, and the others continue. An environment stays
until its recipe (`recipes.py`) changes. Builds run one at a time, at the lowest priority.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.peers.environment import PEERS_DIR, ROOT, Peer, build, fetch_libraries, tail
from benchmarks.peers.recipes import PEERS

__all__ = ["PEERS", "PEERS_DIR", "ROOT", "Peer", "build", "tail"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"engines (default: all):  {', '.join(PEERS)}")
    names: list[str] = parser.parse_args().names or list(PEERS)
    if unknown := [name for name in names if name not in PEERS]:
        parser.error(f"unknown engine:  {', '.join(unknown)}")
    failed = {}
    for name in names:
        why = build(PEERS[name])
        print(f"{name}: {'ready' if why is None else 'NOT BUILT, comparisons leave it out'}", flush=True)
        if why is None and (none := fetch_libraries(PEERS[name])):
            print(f"{name}: slower without {none}")
        if why is not None:
            failed[name] = why
            print(why, file=sys.stderr)
    print(f"{len(names) - len(failed)} of {len(names)} engines ready"
          + (f"; without {', '.join(failed)}" if failed else ""))
    return int(len(failed) == len(names))


if __name__ == "__main__":
    sys.exit(main())
