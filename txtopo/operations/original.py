"""Original: the states of a topology as of one txid, read while it may be running.

Nothing is written here: no epoch, no ledger, no place in the election. A snapshot may show a txid
that is not committed yet, or states at different txids. So it is looked at again and again until
all states hold one txid that is committed, for a limited time.

Rules
-----
1. The states of one database are read in one snapshot. Every other time each is read by itself,
   since a copy of a database has its identity, too. Each state has the ledger that its snapshot
   shows. A state that has moved on is read as of the txid, if its store keeps history.
2. The txid is the last one of what each ledger holds, so it is the end of a group.
3. It is committed: ZooKeeper has a higher ``current``, read after the snapshots were opened.
4. The attempt that each ledger names is the one whose metadata is stored. So the positions in that
   metadata are those of the rows.
5. A store without snapshots is read only while nobody leads, and its ledger must be the same
   afterwards: a coordinator that starts claims it before it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count

from txtopo.ensemble.nodes import CURRENT, StoredBatch, batch_of, batch_path, current_of
from txtopo.errors import StateUsageError, StoreUnavailable
from txtopo.operations.session import OperatorSession
from txtopo.state.backend import Snapshot, held_ledger
from txtopo.state.witness import check_witness

AGAIN_S = 0.05
"""How long to wait before states that do not agree are read again."""


@dataclass(frozen=True, slots=True)
class Moment:
    """States of a topology as of one committed txid, while their snapshots are open.

    Attributes:
        txid: The txid.
        batch: Its stored batch, which says where the spouts were.
        snapshots: A snapshot of each state, as ``component.state``.
    """

    txid: int
    batch: StoredBatch
    snapshots: Mapping[str, Snapshot] = field(repr=False)


class Original:
    """A topology that is read.

    Args:
        session: Its nodes and states.
        wait_s: How many seconds to wait until all states hold one committed txid.
    """

    def __init__(self, session: OperatorSession, wait_s: float) -> None:
        self.session = session
        self._wait_s = wait_s
        self._now: Callable[[], float] = session.now
        self._sleep: Callable[[float], None] = session.sleep

    @contextmanager
    def moment(self, names: Sequence[str], txid: int | None) -> Iterator[Moment]:
        """Open snapshots of some states, all as of one committed txid.

        Args:
            names: The states, as ``component.state``.
            txid: The txid; None for the newest one that all of them hold.

        Raises:
            StateUsageError: A state no longer holds the txid, or its metadata is gone.
            StoreUnavailable: The states did not agree in time; the message says what to do.
            StoreDamagedError: A table or a ledger was restored alone.
        """
        ways = (self._groups(names), [[name] for name in names])
        until_s = self._now() + self._wait_s
        for number in count():
            groups = ways[number % len(ways)]
            with ExitStack() as stack:
                found = self._tried(groups, txid, stack, until_s)
                if isinstance(found, Moment):
                    yield found
                    return
            if self._now() >= until_s and number:
                raise self._disagree(found)
            self._sleep(AGAIN_S)

    def check_unchanged(self, name: str, snapshot: Snapshot) -> None:
        """Check that a state without snapshots was not written while its rows were read.

        Raises:
            StoreUnavailable: It was; nothing of it was copied.
        """
        if snapshot.is_snapshot or held_ledger(self.session.backends[name]) == snapshot.ledger:
            return
        raise StoreUnavailable(
            f"state {name!r} was written while it was being read, and its store has no snapshots; "
            "expected the topology not to run at the same time; stop it, and call this again",
            state=name,
        )

    def _groups(self, names: Sequence[str]) -> list[list[str]]:
        """Return the states of each database."""
        groups: dict[object, list[str]] = {}
        for name in names:
            backend = self.session.backends[name]
            database = backend.database()
            key: object = name if database is None else (database, type(backend))
            groups.setdefault(key, []).append(name)
        return list(groups.values())

    def _tried(
        self,
        groups: Sequence[Sequence[str]],
        wanted: int | None,
        stack: ExitStack,
        until_s: float,
    ) -> Moment | str:
        """Return the moment, or why there is none now."""
        snapshots = self._opened(groups, stack)
        held = {name: each.ledger for name, each in snapshots.items()}
        if empty := [name for name, each in held.items() if each is None or each.is_empty]:
            return f"state {empty[0]!r} holds no txid yet"
        txids = {name: each.txid for name, each in held.items() if each is not None}
        txid = wanted
        if txid is None:
            txid = min(txids.values(), default=self._current() - 1)
        for name, at in txids.items():
            if at < txid:
                return f"state {name!r} holds txid {at}, not {txid}"
            if at == txid:
                check_witness(snapshots[name], self.session.table(name), name)
                continue
            try:
                opened = self.session.backends[name].snapshot_of(txid)
                snapshots[name] = stack.enter_context(opened)
            except StateUsageError as error:
                if wanted is not None:
                    raise self._gone(name, at, txid, error) from error
                return f"the states hold {txids}"
        batch = self._committed(txid, until_s, wanted=wanted is not None)
        if isinstance(batch, str):
            return batch
        for name, snapshot in snapshots.items():
            ledger = snapshot.ledger
            if ledger is None or ledger.last_writer != batch.attempt:
                writer = None if ledger is None else ledger.last_writer
                return (
                    f"state {name!r} holds txid {txid} from attempt {writer}, and the stored "
                    f"metadata is of {batch.attempt}"
                )
            if not snapshot.is_snapshot and self.session.state.leader() is not None:
                return f"the store of state {name!r} has no snapshots, and a coordinator leads"
        return Moment(txid, batch, snapshots)

    def _opened(self, groups: Sequence[Sequence[str]], stack: ExitStack) -> dict[str, Snapshot]:
        snapshots: dict[str, Snapshot] = {}
        for names in groups:
            backends = [self.session.backends[name] for name in names]
            first = backends[0]
            if len(backends) > 1:
                opened = stack.enter_context(first.snapshots(backends))
            else:
                opened = [stack.enter_context(first.snapshot())]
            snapshots |= zip(names, opened, strict=True)
        return snapshots

    def _current(self) -> int:
        self.session.state.synchronize()
        return current_of(self.session.state.get(CURRENT))

    def _committed(self, txid: int, until_s: float, *, wanted: bool) -> StoredBatch | str:
        """Return the stored batch of a txid once it is committed, or why there is none.

        Its snapshots stay open meanwhile: a txid that is being committed soon is.
        """
        while (current := self._current()) <= txid:
            if self._now() >= until_s:
                return (
                    f"the states hold txid {txid}, and txid {current - 1} is the last committed one"
                )
            self._sleep(AGAIN_S)
        node = self.session.state.get(batch_path(txid))
        if node is not None:
            return batch_of(batch_path(txid), txid, node)
        if not wanted:
            return f"txid {txid} was superseded while it was being read"
        raise StateUsageError(
            f"it is unknown where the spouts of {self.session.graph.id!r} were after txid {txid}; "
            f"ZooKeeper no longer has its metadata, and txid {current - 1} is the last committed "
            "one; expected a later txid; Config.history_txids says how many are kept from now "
            f"on, got {self.session.config.history_txids}",
            txid=txid,
            committed_txid=current - 1,
        )

    def _gone(self, name: str, held: int, txid: int, error: StateUsageError) -> StateUsageError:
        return StateUsageError(
            f"state {name!r} holds txid {held} and can no longer be read as of txid {txid}: "
            f"{error}; expected the newest txid, without at=, or a state that keeps history",
            state=name,
            txid=txid,
            ledger_txid=held,
        )

    def _disagree(self, why: str) -> StoreUnavailable:
        id = self.session.graph.id
        return StoreUnavailable(
            f"the states of {id!r} did not hold one committed txid at the same moment in "
            f"{self._wait_s:g} s; {why}; nothing was copied; pause the topology with txtopo "
            f"deactivate {id}, or stop it, and call this again; if it is stopped, start it once "
            "until it has committed what it began",
            topology=id,
        )
