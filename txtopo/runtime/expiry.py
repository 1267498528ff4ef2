"""Expiry: deletes rows that no later txid needs, in parallel to the commits.

Within a txid S a committer declares that no later txid needs the rows up to a bound
(``StateTransaction.expire``). The declaration changes no result: a row that was not deleted yet is
read as before, so results do not depend on when, or whether, rows are deleted.

Rules
-----
1. The bound of S is used when ``current`` is durably past the group *after* the group of S. Not
   earlier: while that next group is the last one, ``rewind`` may take it back. And while its commit
   is under way, some states may hold it and others may not, so that S's group is still the last one
   of some state. After that, every txid that can still run is later than S: a redo repeats a later
   group, and a rewind ends with S's group or later. A rewind further back, in a store that keeps
   history, writes the deleted rows back.
2. Only rows that S's group or an earlier one has written are deleted. Whatever the bound, a store
   also keeps the rows of the last group in its ledger: see :func:`txtopo.state.ledger.expiring`.
3. A store deletes in a transaction that checks the ledger, so a deposed leader deletes nothing. The
   ledger does not change, so commits are not affected.
4. A term has one deletion at a time, on its own thread, and begins at most one every
   :data:`EXPIRY_PAUSE_S`. It calls a store repeatedly, which deletes a few rows each time, and ends
   early when the term is over.
5. A failure is logged, and tried again after a pause. It does not fail a txid. After a broken
   promise the state is left alone for the rest of the term.

Bounds are kept in memory only. A takeover loses them; later txids declare later ones.

A streaming query (``foreach_batch``) has no coordinator, and deletes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from txtopo.errors import PromiseError
from txtopo.retries import warn_of_retry

if TYPE_CHECKING:
    from concurrent.futures import Future

    from txtopo.fingerprint import StateName
    from txtopo.runtime.run_context import RunContext
    from txtopo.state.backend import StateBackend

EXPIRY_PAUSE_S = 1.0
"""The least time between the end of one deletion and the start of the next."""


@dataclass(frozen=True, slots=True)
class _Group:
    """A committed group, and the bounds that its txids declared, by state."""

    first: int
    last: int
    bounds: Mapping[StateName, Any]


@dataclass(frozen=True, slots=True)
class _Due:
    """What may be deleted: rows up to a bound, which an earlier txid than *before_txid* wrote."""

    up_to: Any
    before_txid: int


class Expiry:
    """Deletes what has expired, in one term. Used on the loop only.

    Args:
        context: The graph, settings, scheduler etc. of the topology.
        backends: The states that the term has claimed.
        epoch: The epoch of the term, for the log.
    """

    def __init__(
        self, context: RunContext, backends: Mapping[StateName, StateBackend], epoch: int
    ) -> None:
        self._context = context
        self._backends = backends
        self._epoch = epoch
        self._groups: deque[_Group] = deque()
        self._due: dict[StateName, _Due] = {}
        self._refused: set[StateName] = set()
        self._failures = 0
        self._busy = self._over = False

    def committed(self, first: int, last: int, bounds: Mapping[StateName, Any]) -> None:
        """Keep the bounds of a group that every state has written."""
        self._groups.append(_Group(first, last, bounds))

    def advanced(self, current: int) -> None:
        """Begin to delete what is due, now that ``current`` is durable."""
        groups = self._groups
        while len(groups) > 1 and groups[1].last < current:
            bounds = groups.popleft().bounds
            self._due |= {name: _Due(up_to, groups[0].first) for name, up_to in bounds.items()}
        self._begin()

    def close(self) -> None:
        """Begin no further deletion, and end the current one after its next call of a store."""
        self._over = True

    def _begin(self) -> None:
        due = {name: each for name, each in self._due.items() if name not in self._refused}
        if due and not (self._busy or self._over):
            self._busy = True
            self._context.scheduler.submit(partial(self._delete, due), partial(self._deleted, due))

    def _rested(self) -> None:
        self._busy = False
        self._begin()

    def _delete(self, due: Mapping[StateName, _Due]) -> dict[StateName, Exception]:
        """Delete what is due, and return what failed. Blocks."""
        failed: dict[StateName, Exception] = {}
        for name, each in due.items():
            try:
                while not self._over:
                    self._context.scheduler.point("expire.before")
                    if not self._backends[name].expire(each.up_to, each.before_txid):
                        break
                    self._context.scheduler.point("expire.after")
            except Exception as error:  # noqa: BLE001 - a plug-in's; it must not fail a txid
                failed[name] = error
        return failed

    def _deleted(
        self, due: Mapping[StateName, _Due], future: Future[dict[StateName, Exception]]
    ) -> None:
        if self._over:
            return
        failed = future.result()
        self._failures = self._failures + 1 if failed else 0
        for name, each in due.items():
            if name not in failed and self._due.get(name) == each:
                del self._due[name]
        pause_s = EXPIRY_PAUSE_S
        if failed:
            pause_s = max(pause_s, self._context.config.pause_s(self._failures))
        self._context.scheduler.call_later(pause_s, self._rested)
        for name, error in failed.items():
            if isinstance(error, PromiseError):
                self._refused.add(name)
            warn_of_retry(
                f"the deletion of rows of state {'.'.join(name)!r} that have expired",
                error,
                topology=self._context.graph.id,
                failures=self._failures,
                txid=due[name].before_txid - 1,
                epoch=self._epoch,
                component=name[0],
                pause_s=pause_s,
                final=isinstance(error, PromiseError),
            )
