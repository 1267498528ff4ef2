"""Random opaque histories against plain Python: changed replays, removals, restarts, zombies."""

from __future__ import annotations

from collections.abc import Callable

from txtopo.state import State
from txtopo.testing.conformance.assertions import Rule, proves
from txtopo.testing.conformance.history import TXIDS, Commit, Contents, History, merging, writing
from txtopo.testing.conformance.subject import Drive, Subject

# Making a table costs more than a history, so some share one, each with keys of its own.
_HISTORIES_OF_A_TABLE = 10


class Histories(Subject):
    """Plays histories in states that *make* declares."""

    def play(self, url: str, drive: Drive, commit: Commit, make: Callable[[str], State]) -> None:
        """Play them all; fail when a state holds something else than the oracle says."""
        seeds = range(self.histories // 2)
        for first in seeds[::_HISTORIES_OF_A_TABLE]:
            store, contents = drive(make(f"history{first}")), Contents()
            for at, seed in enumerate(seeds[first : first + _HISTORIES_OF_A_TABLE]):
                history = History(store, drive, seed, contents, fenced=self.fenced)
                history.run(1 + at * TXIDS, commit)
                store, contents = history.store, history.contents
            store.close()


class HistorySuite(Histories):
    """Histories of partial aggregates."""

    @proves(Rule.UNDO)
    def test_random_histories_of_partials_end_as_the_oracle_says(
        self, url: str, drive: Drive
    ) -> None:
        self.play(url, drive, merging, lambda table: self.counted(url, table))


class PutHistorySuite(Histories):
    """Histories of values that are written one by one."""

    @proves(Rule.UNDO)
    def test_random_histories_of_writes_end_as_the_oracle_says(
        self, url: str, drive: Drive
    ) -> None:
        self.play(url, drive, writing, lambda table: self.declared(url, table))
