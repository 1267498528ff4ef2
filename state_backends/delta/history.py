"""Earlier versions of a state: which one holds a txid, and when files of older ones may go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from state_backends.delta.failures import FAILURES
from state_backends.delta.ledgers import LEDGER, notes_of
from state_backends.delta.packing import application, unpacked

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FIRST_LOOK = 64
_MS_OF_A_SECOND = 1000


def version_of(
    txid: int,
    newest: DeltaTable,
    open_at: Callable[[int], DeltaTable],
    topology: str,
    state: str,
) -> DeltaTable | None:
    """Return the last version that holds *txid*, or None if the log has it no more.

    The txid of a version never gets smaller, so it is searched by halving. ``history()`` would not
    do: it counts back from the version that is newest when it is asked.

    Args:
        txid: The txid.
        newest: The table at its newest version.
        open_at: Opens another version.
        topology: Who owns the state.
        state: Name of the state.
    """
    application_id = application(topology, state)

    def held(table: DeltaTable) -> int:
        packed = table.transaction_version(application_id)
        return 0 if packed is None else unpacked(packed)[1]

    if held(newest) == txid:
        return newest
    found: DeltaTable | None = None
    low, high = 0, newest.version() - 1
    while low <= high:
        middle = (low + high) // 2
        try:
            table = open_at(middle)
        except FAILURES:
            low = middle + 1  # the log does not go back so far
            continue
        if held(table) <= txid:
            found, low = table, middle + 1
        else:
            high = middle - 1
    return found if found is not None and held(found) == txid else None


def seconds_since(table: DeltaTable, txid: int) -> int | None:
    """Return how old *txid* was when the newest commit was made, in seconds, rounded up.

    None if the log does not go back so far.
    """
    newest: int | None = None
    for commit in _commits(table):
        moment = int(commit["timestamp"])
        newest = moment if newest is None else newest
        held = _txid(commit)
        if held is not None and held <= txid:
            return -((moment - newest) // _MS_OF_A_SECOND)
    return None


def _txid(commit: dict[str, Any]) -> int | None:
    version = notes_of(commit).get(LEDGER)
    return None if version is None else unpacked(int(version))[1]


def _commits(table: DeltaTable) -> Iterator[dict[str, Any]]:
    """Yield the commits from the newest back, a few at first, since each is a file."""
    limit, seen = _FIRST_LOOK, 0
    while True:
        commits = table.history(limit)
        yield from commits[seen:]
        if len(commits) < limit:
            return
        limit, seen = limit * 4, len(commits)
