"""Lineage: whether the newest version of a table follows from what our last commits left.

``RESTORE``, like any other change of a state's rows by others, creates a new version and leaves the
transaction unchanged. Then the ledger no longer matches the rows.

Rules
-----
1. Our versions have the ledger in the metadata of their commit, or are marked as a fold. Versions
   that do not change rows (``OPTIMIZE``, ``VACUUM``, properties) do no harm. Any other version must
   have the same files as a correct version since our last one: then somebody has undone a wrong
   change, or an ``OPTIMIZE``.
2. A batch that is written on top of wrong rows is wrong as well, and stays wrong. A claim does not
   change rows.
3. The search goes back to the last two commits of different txids or attempts, so that a wrong
   version is not hidden by a commit that followed it without a conflict.

The log may not go back that far. Then nothing is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from state_backends.delta.failures import FAILURES
from state_backends.delta.layout import FOLD
from state_backends.delta.tables import LEDGER, notes_of, unpacked

if TYPE_CHECKING:
    from state_backends.delta.library import DeltaTable

# Operations of others that change files but not rows; and operations, ours or others', that do not
# change files.
_HARMLESS = frozenset(
    ("OPTIMIZE", "REORG", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "CREATE TABLE")
)

_FEW, _MOST = 8, 100


def foreign_change(table: DeltaTable, open_at: Callable[[int], DeltaTable]) -> str | None:
    """Return which change made the rows differ from the ledger; None if no known change did.

    Args:
        table: The table, at some version.
        open_at: Opens another version of it.
    """
    files = _Files(table, open_at)
    good: list[int] = []  # the versions with the right rows, since our last one
    bad: str | None = None
    for commit in reversed(_last_commits(table)):
        version, ours = commit["version"], _is_ours(commit)
        if _written(commit) is not None and bad is not None:
            return bad
        if ours or commit.get("operation") in _HARMLESS:
            if bad is None and (ours or good):
                good = [version] if ours else [*good, version]
        elif not good:
            continue  # it was before our first one
        elif any(files.same(version, each) for each in reversed(good)):
            good, bad = [*good, version], None
        elif bad is None:
            bad = (
                f"version {version} of the table, a {commit.get('operation')} by {_by(commit)}, "
                f"changed them but not the ledger; expected the files of version {good[-1]}; if "
                "no version of txtopo follows it, go back to that version with RESTORE; "
                "otherwise restore the whole folder as of a single moment"
            )
    return bad


class _Files:
    """The files of versions of a table."""

    def __init__(self, table: DeltaTable, open_at: Callable[[int], DeltaTable]) -> None:
        self._table, self._open_at = table, open_at

    def same(self, version: int, other: int) -> bool:
        """Return whether two versions have the same files."""
        try:
            return self._of(version) == self._of(other)
        except FAILURES:
            return False  # one of the two is gone

    def _of(self, version: int) -> set[str]:
        at = self._table if version == self._table.version() else self._open_at(version)
        return set(at.file_uris())


def _last_commits(table: DeltaTable) -> list[dict[str, Any]]:
    """Return the commits since our last but one that wrote rows, newest first."""
    found: list[dict[str, Any]] = []
    for limit in (_FEW, _MOST):
        commits = [each for each in table.history(limit) if each["version"] <= table.version()]
        found, written = [], set[str]()
        for commit in commits:
            found.append(commit)
            if (ledger := _written(commit)) is not None:
                written.add(ledger)
            if len(written) > 1:
                return found
    return found


def _is_ours(commit: Mapping[str, Any]) -> bool:
    notes = notes_of(commit)
    return LEDGER in notes or FOLD in notes


def _written(commit: Mapping[str, Any]) -> str | None:
    """Return the ledger of one of our commits, unless it is a claim, which has the number 0."""
    ledger = notes_of(commit).get(LEDGER)
    return ledger if ledger is not None and unpacked(int(ledger))[2] else None


def _by(commit: Mapping[str, Any]) -> str:
    return str(commit.get("engineInfo") or commit.get("userName") or "somebody else")
