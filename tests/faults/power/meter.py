"""The processor seconds of a run and of all processes that it starts, alive or not; Linux only."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MARK = "POWER_OF_TESTS"
"""What all processes of a run have in their environment; txtopo refuses an unknown ``TXTOPO_…``."""
TICKS = os.sysconf("SC_CLK_TCK")

# A process: its id, and when it began, since ids are used again.
Process = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class Reading:
    """What ``/proc`` says of a process: its parent, and the ticks of it and of waited children."""

    parent: int
    ticks: int


def has_mark(process: Path, mark: bytes) -> bool:
    """Return whether a folder of ``/proc`` is of a process with a variable, ``NAME=value``."""
    return mark in (process / "environ").read_bytes().split(b"\0")


class Meter:
    """Reads the processor seconds of all processes that have the mark of this run.

    A child that was waited for is in the time of its parent. An orphan that ends is in nobody's
    time any more, so that the last reading of it is kept.
    """

    def __init__(self) -> None:
        self._mark = f"{MARK}={os.environ.get(MARK, '')}".encode()
        self._strangers: set[Process] = set()
        self._last: dict[Process, Reading] = {}
        self._orphans = 0

    def seconds(self) -> float:
        """Return the seconds until now; only differences mean something."""
        now: dict[Process, Reading] = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                self._read(folder, now)
        alive = {process for process, _ in now}
        for process, reading in self._last.items():
            if process not in now and reading.parent not in alive:
                self._orphans += reading.ticks
        self._last = now
        return (self._orphans + sum(each.ticks for each in now.values())) / TICKS

    def _read(self, folder: Path, now: dict[Process, Reading]) -> None:
        try:
            # The second field is a name in brackets, which may have spaces.
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            process = (int(folder.name), fields[19])
            if process in self._strangers:
                return
            if process not in self._last and not has_mark(folder, self._mark):
                self._strangers.add(process)
                return
        except OSError:  # it has ended meanwhile, or is another user's
            return
        now[process] = Reading(int(fields[1]), sum(map(int, fields[11:15])))
