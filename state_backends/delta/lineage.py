"""Lineage: whether the newest version of a table follows from what the last commits of ours left.

``RESTORE``, and whoever else changes the rows of a state, makes a new version and leaves the
transaction as it is. So the ledger still says what the rows do not hold any more.

Rules
-----
1. Versions of ours have the ledger in the metadata of their commit, or say that they are a fold.
   Those that change no rows (``OPTIMIZE``, ``VACUUM``, properties) do no harm. Any other version
   must have the files of one that was right since the last one of ours: then somebody has undone
   what was wrong, or an ``OPTIMIZE``.
2. A batch that is written upon wrong rows is wrong as well, and stays so. A claim changes no rows.
3. It is looked back as far as the last two commits of different txids or attempts, so that a
   commit that came in after a wrong version, without a conflict, does not hide that one.

The log may not go back so far. Then nothing is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from state_backends.delta.failures import FAILURES
from state_backends.delta.layout import FOLD
from state_backends.delta.tables import LEDGER, notes_of, unpacked

if TYPE_CHECKING:
    from deltalake import DeltaTable

# What others do that changes files, and no rows; and what we and others do that changes no files.
_HARMLESS = frozenset(
    ("OPTIMIZE", "REORG", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "CREATE TABLE")
)

_FEW, _MOST = 8, 100


def foreign_change(table: DeltaTable, open_at: Callable[[int], DeltaTable]) -> str | None:
    """Return by what the rows are not those of the ledger; None if they are, or nobody knows.

    Args:
        table: The table, at some version.
        open_at: Opens another version of it.
    """
    files = _Files(table, open_at)
    good: list[int] = []  # the versions with the right rows, since the last one of ours
    bad: str | None = None
    for commit in reversed(_last_commits(table)):
        version, ours = commit["version"], _is_ours(commit)
        if _written(commit) is not None and bad is not None:
            return bad
        if ours or commit.get("operation") in _HARMLESS:
            if bad is None and (ours or good):
                good = [version] if ours else [*good, version]
        elif not good:
            continue  # it was before the first one of ours
        elif any(files.same(version, each) for each in reversed(good)):
            good, bad = [*good, version], None
        elif bad is None:
            bad = (
                f"version {version} of the table, a {commit.get('operation')} by {_by(commit)}, "
                f"changed them and not the ledger; expected the files of version {good[-1]}; if no "
                "version of txtopo follows it, bring that one back with RESTORE, else the whole "
                "folder as of one moment"
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
            return False  # one of them is gone

    def _of(self, version: int) -> set[str]:
        at = self._table if version == self._table.version() else self._open_at(version)
        return set(at.file_uris())


def _last_commits(table: DeltaTable) -> list[dict[str, Any]]:
    """Return the commits since the last but one of ours that wrote rows, the newest first."""
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
    """Return the ledger of a commit of ours that is not a claim, which has the number 0."""
    ledger = notes_of(commit).get(LEDGER)
    return ledger if ledger is not None and unpacked(int(ledger))[2] else None


def _by(commit: Mapping[str, Any]) -> str:
    return str(commit.get("engineInfo") or commit.get("userName") or "somebody else")
