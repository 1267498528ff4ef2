"""Earlier versions of a state: which one holds a txid, and when files of older ones may go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from state_backends.delta.ledgers import LEDGER
from state_backends.delta.packing import unpacked

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FIRST_LOOK = 64
_MS_OF_A_SECOND = 1000


def version_of(table: DeltaTable, txid: int) -> int | None:
    """Return the last version that holds *txid*, or None if the log has it no more."""
    # The versions after a commit and before the next one hold the same: claims, folds, optimizing.
    following = table.version()
    for commit in _commits(table):
        held = _txid(commit)
        if held is None:
            continue
        if held == txid:
            return following
        if held < txid:
            return None
        following = int(commit["version"]) - 1
    return None


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
    version = commit.get(LEDGER)
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
