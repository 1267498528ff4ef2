"""Folds, removes old files and reopens tables, so that commits stay as fast as at the beginning.

* A log is folded.
* Data files and entries of the log are removed if no version within reach needs them. delta-rs
  makes a checkpoint every hundred versions, and then removes entries of the log that are older than
  ``delta.logRetentionDuration``. That setting is adjusted here to the age of the oldest txid within
  reach. Each commit lists the log, which takes 1 to 3 ms for a hundred entries.
* The table is opened again, since after a thousand commits an open table takes ten times as long
  for the next.

Without delta-rs nothing is removed.

All of this runs in a separate thread while commits continue. delta-rs releases Python's lock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from state_backends.delta.appending import fold
from state_backends.delta.layout import RETENTION, Layout
from state_backends.delta.library import HAS_DELTA_RS
from state_backends.delta.reading import Reader, files_of, seconds_since
from txtopo.state.log_mode import SEGMENTS_OF_A_TIER, BackgroundTask, span_to_fold

if TYPE_CHECKING:
    from state_backends.delta.library import DeltaTable

RENEW_COMMITS = 48
"""The number of commits after which the table is opened again."""
VACUUM_COMMITS = 240
"""The number of commits between vacuums. They leave at least this many files behind that no version
within reach needs."""
# If a commit began on a version that the log no longer has, it fails and is tried again.
_LOG_S_MIN = 20


class Upkeep:
    """Folds and vacuums the table of a state, in parallel to the commits.

    Args:
        open_table: Opens the table at its newest version.
        reader: The reader of the table.
        layout: The layout of the table.
        history_txids: Number of txids whose versions stay readable.
        renewed: Called with a newly opened table, for the next commits.
    """

    def __init__(
        self,
        open_table: Callable[[], DeltaTable],
        reader: Reader,
        layout: Layout,
        history_txids: int,
        renewed: Callable[[DeltaTable], None],
    ) -> None:
        self._renewed = renewed
        self._open_table = open_table
        self._reader = reader
        self._layout = layout
        self._history_txids = history_txids
        self._commits = 0
        self._background = BackgroundTask(f"the table of state {layout.state.name!r}")

    def after(self, txid: int) -> None:
        """Called after a commit of *txid*; starts the work that is due."""
        self._commits += 1
        folds = self._layout.state.mode == "log" and self._commits % SEGMENTS_OF_A_TIER == 0
        if not folds and self._commits % RENEW_COMMITS:
            return
        vacuums = HAS_DELTA_RS and self._commits % VACUUM_COMMITS == 0
        self._background.submit(lambda: self._work(txid, folds=folds, vacuums=vacuums))

    def close(self) -> None:
        """Wait for running work."""
        self._background.close()

    def _work(self, txid: int, *, folds: bool, vacuums: bool) -> None:
        if folds:
            self._fold(txid)
        table = self._open_table()
        if vacuums:
            age_s = seconds_since(table, txid - self._history_txids)
            if age_s is not None:
                fit_log(table, age_s)
                remove_old_files(table, age_s)
                table = self._open_table()
        self._renewed(table)

    def _fold(self, txid: int) -> None:
        while True:
            table = self._open_table()
            span = span_to_fold(files_of(table), txid)
            if span is None:
                return
            fold(table, self._reader, self._layout, *span)


def fit_log(table: DeltaTable, age_s: int) -> None:
    """Let delta-rs remove entries of the log older than twice *age_s*, at its next checkpoint.

    Each change of that setting is a commit, which may conflict with other writers, so small changes
    are skipped.
    """
    wanted = max(2 * age_s, _LOG_S_MIN)
    text = table.metadata().configuration.get(RETENTION, "")
    match = re.fullmatch(r"interval (\d+) seconds", text)
    found = int(match[1]) if match else None
    if found is None or found < wanted or found > 4 * wanted:
        table.alter.set_table_properties({RETENTION: f"interval {wanted} seconds"})


def remove_old_files(table: DeltaTable, age_s: int) -> None:
    """Remove files that no version younger than *age_s* needs, but none younger than an hour.

    So the files of a running commit stay.
    """
    hours = -(-age_s // 3600)
    table.vacuum(max(hours, 1), dry_run=False, enforce_retention_duration=False)
