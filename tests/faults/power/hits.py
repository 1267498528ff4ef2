"""Note which planted bugs a test could notice: a tree with probes gets a copy of this file.

A probe stands before a statement that a bug changes, and calls :func:`hit`. Every process of a run
notes its hits in the same file, those of Spark's workers and of killed children too, since the
number of the test that runs stands in memory that all of them share.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress

FOLDER = ""
"""Where the run has its files; :func:`tests.faults.power.probes.add_probes` fills it in."""
NOW = "now"
"""The file with the number of what runs: of a test, or of the set-up of a shared fixture."""
HITS = "hits.txt"
"""The file with a line for each bug that a number has hit."""
NUMBER_BYTES = 8

_seen: set[tuple[bytes, tuple[str, ...]]] = set()


def hit(*bugs: str) -> None:
    """Note that what runs has executed lines of these bugs."""
    place = (_now[:NUMBER_BYTES], bugs)
    if place not in _seen:
        _seen.add(place)
        number = int.from_bytes(place[0], "little")
        lines = "".join(f"{number} {bug}\n" for bug in bugs)
        # A test may have made the disk full, or taken rights away.
        with suppress(OSError):
            file = os.open(f"{FOLDER}/{HITS}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(file, lines.encode())
            os.close(file)


def shared_number(folder: str) -> mmap.mmap | bytes:
    """Return the memory with the number of what runs; zero if no run has begun in *folder*."""
    try:
        with open(f"{folder}/{NOW}", "r+b") as file:
            return mmap.mmap(file.fileno(), NUMBER_BYTES)
    except OSError:
        return bytes(NUMBER_BYTES)


_now = shared_number(FOLDER)
