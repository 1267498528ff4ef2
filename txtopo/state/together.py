"""Finds the states of a topology that are committed in one transaction of their database.

Rules
-----
1. States are candidates if their backends return an equal
   :class:`~txtopo.state.backend.Database`. That is a hint, since a clone or a promoted standby has
   the same identity as its original.
2. After the claims of a takeover or of an operator's verb, the first candidate reads the ledgers
   of all through its own connection, in one snapshot. Those states share transactions whose ledger
   it reads as the claim has just written it: with this epoch and term id, which no copy has.
3. Every other state keeps transactions of its own, and it is said why.
4. Commits find the ledgers again and lock them, so a connection that later leads to another
   database writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from txtopo.errors import PlugInError
from txtopo.state.backend import Database

if TYPE_CHECKING:
    from txtopo.fingerprint import StateName
    from txtopo.state.backend import StateBackend
    from txtopo.state.ledger import Ledger


@dataclass(frozen=True, slots=True)
class SharedTransactions:
    """How the states of a topology share the transactions of their databases.

    Attributes:
        groups: The states of each transaction, in the order in which the transactions are made.
            Each state is in one of them.
        apart: Why a state has transactions of its own, for those states that are in the same
            database as another.
    """

    groups: tuple[tuple[StateName, ...], ...]
    apart: Mapping[StateName, str] = field(default_factory=dict)


def shared_transactions(
    backends: Mapping[StateName, StateBackend], claimed: Mapping[StateName, Ledger]
) -> SharedTransactions:
    """Find the states that share transactions. Blocks: it asks the stores.

    Args:
        backends: The states, which have been claimed, in the order in which they are committed.
        claimed: The ledger that each claim has written.

    Raises:
        StoreUnavailable: A store cannot be reached; take over again.
    """
    apart: dict[StateName, str] = {}
    groups: list[tuple[StateName, ...]] = []
    for names in _candidates(backends, apart):
        while names:
            first, *others = names
            proved = _proved(first, others, backends, claimed) if others else []
            groups.append((first, *proved))
            names = [name for name in others if name not in proved]
            if names:
                apart |= dict.fromkeys(names, _COPY.format(".".join(first)))
                apart[first] = _COPY.format(".".join(names[0]))
    alone = {names[0] for names in groups if len(names) == 1}
    order = {name: at for at, name in enumerate(backends)}
    return SharedTransactions(
        tuple(sorted(groups, key=lambda names: order[names[0]])),
        {name: why for name, why in apart.items() if name in alone},
    )


_COPY = (
    "it does not see, or is not seen by, what was just claimed in {}: one of them is in a copy "
    "of the other's database"
)


def _candidates(
    backends: Mapping[StateName, StateBackend], apart: dict[StateName, str]
) -> list[list[StateName]]:
    """Return the states of each database and session, and note in *apart* why some are alone."""
    found: dict[tuple[Database, object], list[StateName]] = {}
    alone: list[list[StateName]] = []
    for name, backend in backends.items():
        database = _database(backend) if len(backends) > 1 else None
        if database is None:
            alone.append([name])
        elif (lacks := _lacks(type(backend))) is not None:
            alone.append([name])
            apart[name] = f"{type(backend).__name__} overrides {lacks}"
        else:
            # Another class may do more in its own commit_together.
            found.setdefault((database, type(backend).commit_together), []).append(name)
    for key, names in found.items():
        for other, theirs in found.items():
            if other != key and other[0].identity == key[0].identity:
                what = "its URL has another user or other options"
                if other[0] == key[0]:
                    what = "its backend has another commit_together"
                apart |= dict.fromkeys(names, f"{what} than {'.'.join(theirs[0])}")
    return alone + list(found.values())


def _database(backend: StateBackend) -> Database | None:
    database: object = backend.database()
    if database is None or isinstance(database, Database):
        return database
    raise PlugInError(
        f"database of {type(backend).__name__} returned {database!r:.100}; expected a Database, "
        "or None; fix the plug-in",
        got=f"{database!r:.100}",
    )


_PAIRS = (("commit", "commit_together"), ("replace", "replace_together"))
"""What a backend, or a ``RowBackend``, does for one state, and for several."""


def _lacks(kind: type[StateBackend]) -> str | None:
    """Return what a subclass changes for one state alone, and not for several; None for nothing."""

    def owner(name: str) -> int:
        return next(at for at, each in enumerate(kind.__mro__) if name in vars(each))

    for one, together in _PAIRS:
        if hasattr(kind, together) and owner(together) > owner(one):
            return f"{one} and not {together}"
    return None


def _proved(
    first: StateName,
    others: Sequence[StateName],
    backends: Mapping[StateName, StateBackend],
    claimed: Mapping[StateName, Ledger],
) -> list[StateName]:
    """Return those of the others whose claim the first one's connection reads."""
    opened = backends[first].snapshots([backends[name] for name in (first, *others)])
    with opened as (_, *snapshots):
        return [
            name
            for name, snapshot in zip(others, snapshots, strict=True)
            if snapshot.ledger == claimed[name]
        ]
