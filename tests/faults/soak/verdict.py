"""Judge a soak: whether a promise was broken, and whether a process holds more and more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from tests.harness.report_page import table

WARM_UP = 3
"""The flights are counted this many times before the comparison begins."""
GROWTH_MAX = 1.1
FILES_MORE_MAX = 5
ZNODES_MAX = 200
"""Far above what a window takes, and the history of the flights, which are about 100 txids."""


@dataclass(frozen=True, slots=True)
class Held:
    """The memory, files, threads and znodes of the resident process after one more count."""

    memory_kib: int
    files: int
    threads: int
    znodes: int
    right: bool

    def cells(self) -> tuple[object, ...]:
        """Return its cells of the table."""
        return f"{self.memory_kib / 1024:.0f}", self.files, self.threads, self.znodes


@dataclass(slots=True)
class Soak:
    """The results of a soak.

    Attributes:
        minutes: How long it ran.
        seed: It decides which fault comes when.
        rounds: How often the flights were counted by drivers that met faults, by store.
        samples: How often an outside reader read their states.
        faults: How often each fault happened.
        wrong: The broken promises, with their rounds.
        held: What the resident process held, in order.
        znodes: Those of each round at its end.
    """

    minutes: float
    seed: int
    rounds: Counter[str] = field(default_factory=Counter)
    samples: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    znodes: list[int] = field(default_factory=list)

    def verdict(self) -> list[str]:
        """Return everything that is wrong."""
        found = list(self.wrong)
        found += [f"time {at} of the resident" for at, h in enumerate(self.held) if not h.right]
        warm = self.held[WARM_UP:]
        if len(warm) < WARM_UP:
            return [*found, f"the flights were counted {len(self.held)} times only: soak longer"]
        third = len(warm) // 3 or 1
        first, last = warm[:third], warm[-third:]
        before, after = (median(h.memory_kib for h in part) for part in (first, last))
        if after > before * GROWTH_MAX:
            found.append(f"memory grew from {before:,.0f} to {after:,.0f} KiB")
        for what in ("files", "threads"):
            most, now = (max(getattr(h, what) for h in part) for part in (first, last))
            if now > most + FILES_MORE_MAX:
                found.append(f"{what} grew from {most} to {now}")
        most = max([*self.znodes, *(h.znodes for h in self.held)], default=0)
        if most > ZNODES_MAX:
            found.append(f"there were {most} znodes of one topology")
        return found

    def page(self) -> Iterator[str]:
        """Yield the lines of the report."""
        yield from HEAD.splitlines()
        yield ""
        found = self.verdict()
        yield "Nothing was lost or doubled, nothing grew." if not found else "**Not right:**"
        yield from (f"* {each}" for each in found)
        yield ""
        rounds = ", ".join(f"{count} on {store}" for store, count in sorted(self.rounds.items()))
        yield f"* {self.minutes:.1f} minutes, seed {self.seed}"
        yield f"* {self.rounds.total()} rounds: {rounds}; {self.samples:,} samples"
        yield f"* {self.faults.total()} faults"
        yield f"* meanwhile, one process counted all flights {len(self.held)} times"
        yield ""
        faults = sorted(self.faults.items())
        yield from table(("fault", "times"), ((n.replace("_", " "), count) for n, count in faults))
        yield ""
        columns = ("after this many times", "memory, MiB", "open files", "threads", "znodes")
        yield from table(columns, ((at + 1, *self.held[at].cells()) for at in _some(self.held)))


def _some(held: Sequence[Held]) -> list[int]:
    """Return ten places of a list, the first and the last among them."""
    last = len(held) - 1
    return sorted({round(part * last / 9) for part in range(10)}) if held else []


HEAD = """\
# Soak

`make soak MINUTES=30` counts the flights in a loop on real services (three ZooKeeper servers,
SQLite, PostgreSQL, Delta) during a sequence of faults drawn from a seed. In each round drivers are
killed, frozen, stopped and deposed, and ZooKeeper's servers and the database die and come back; an
outside reader samples continuously, and each sample must be the fold of the first txids. At the
same time one process, exposed to the faults of ZooKeeper, counts all flights repeatedly: it must be
right each time, and its memory, files and threads must not grow. The number of znodes of a topology
must stay small."""
