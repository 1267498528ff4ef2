"""SimulatedEnsemble, SimulatedStore, SimulatedCarrier: the unreliable world around a process.

Sessions of the ensemble outlive their processes. Stores outlive them too, and fail before, in and
after writes. Their backends are :class:`~txtopo.state.row_backend.RowBackend`, so the protocol that
runs is the one of plug-ins. Every version that a store ever holds goes into the history.

The carrier is ``local``, as unreliable as a cluster: jobs get lost; tasks are computed twice, and
some readers see the first output and others the second, as after the loss of an executor; envelopes
are lost, doubled, and delivered late to another job. The stages must notice all of this.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.carriers.carrier import LocalCarrier, RunOutput
from txtopo.ensemble.memory import Contender, MemoryEnsemble, Nodes
from txtopo.errors import (
    CoordinatorUnavailable,
    RunLostError,
    StoreUnavailable,
    UnknownOutcomeError,
)
from txtopo.stages.compiled_topology import Run
from txtopo.stages.permits import Permits, no_permits
from txtopo.stages.stage_context import Record, StageContext
from txtopo.state.backend import Database, Key, StateTable
from txtopo.state.ledger import Ledger
from txtopo.state.row_backend import Contents, Replacement, RowBackend
from txtopo.state.values import Row
from txtopo.testing.simulation.faults import AWAY_S, SLOW_S

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.testing.simulation.world import SimulatedProcess, World

SESSION_S = 6.0

NOTICE_S = 2.0
"""The longest time until a process learns that its session has ended."""


class SimulatedEnsemble(MemoryEnsemble):
    """The ZooKeeper ensemble of a simulation. Its clients are the simulated processes."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._owners: dict[Contender, SimulatedProcess] = {}
        self._away_until_s: dict[SimulatedProcess, float] = {}

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let other work run first. Then no other work interferes, since one runs at a time."""
        self._world.current.checkpoint("zookeeper")
        yield

    def check_reachable(self) -> None:
        """Fail at random: once, or for a while."""
        process, chaos = self._world.current, self._world.chaos
        now_s = self._world.timeline.now_s
        if chaos.happens("zookeeper_away"):
            self._away_until_s[process] = now_s + chaos.between(*AWAY_S)
        away = now_s < self._away_until_s.get(process, 0.0) and not chaos.healed
        if away or chaos.happens("zookeeper_before"):
            raise _lost("was not done")

    def write(self, nodes: Nodes) -> None:
        """Make *nodes* the contents; the answer may get lost."""
        process, world = self._world.current, self._world
        if world.forks.takes(process):
            world.forks.check_nodes(self.nodes, nodes)
            world.history.nodes = nodes
        else:
            world.history.nodes_written(world.timeline.now_s, process, self.nodes, nodes)
        self.nodes = nodes
        process.checkpoint("zookeeper written")
        if self._world.chaos.happens("zookeeper_after"):
            raise _lost("was done")

    def contend(self, contender: Contender) -> bool:
        """Add a candidate to the queue, and remember its process."""
        self._owners[contender] = self._world.current
        return super().contend(contender)

    def withdraw(self, contender: Contender) -> None:
        """Remove a candidate."""
        self._owners.pop(contender, None)
        super().withdraw(contender)

    def wait(self, contender: Contender, timeout_s: float) -> None:
        """Wait in virtual time. A candidate is never woken early; that is one possible order."""
        self._world.current.sleep(self._world.chaos.between(0.0, timeout_s))

    def contenders(self) -> list[SimulatedProcess]:
        """Return the processes that are candidates."""
        return list(self._owners.values())

    def expire(self, process: SimulatedProcess, notice_s: float | None = None) -> None:
        """End the session of a process; notify it later: after *notice_s*, or a random delay."""
        for contender, owner in list(self._owners.items()):
            if owner is process:
                contender.released = True
                self.withdraw(contender)
                if contender.on_lost is not None:
                    delay_s = notice_s
                    if delay_s is None:
                        delay_s = self._world.chaos.between(0.0, NOTICE_S)
                    process.after(delay_s, contender.on_lost)


def _lost(outcome: str) -> CoordinatorUnavailable:
    return CoordinatorUnavailable(
        f"the simulated ensemble does not answer; the call {outcome}", got=outcome
    )


class SimulatedStore:
    """The tables of one store of a simulation.

    Attributes:
        name: Its name in messages.
        world: Its world.
        contents: Its tables.
        database: Its identity, if its states can share transactions.
        clones: Stores with the same identity. Each has a copy of each table of this one, which is
            one write behind it.
        copies: The copies of the tables of its clones. Nobody may write to them.
        told: The backends that have told the identity.
        opened: How many backends each process has open.
        history: Where its writes are recorded.
    """

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.world = world
        self.contents: dict[str, Contents] = {}
        self.database: Database | None = None
        self.clones: list[SimulatedStore] = []
        self.copies: dict[str, Contents] = {}
        self.told: list[SimulatedBackend] = []
        self.opened: dict[SimulatedProcess, int] = {}
        self.history = world.history
        self._away_until_s = 0.0

    def check_reachable(self) -> None:
        """Fail at random: once, or for a while."""
        chaos = self.world.chaos
        if chaos.happens("store_away"):
            self.go_away()
        away = self.world.timeline.now_s < self._away_until_s and not chaos.healed
        if away or chaos.happens("store_before"):
            raise StoreUnavailable(
                f"the simulated store {self.name!r} does not answer", name=self.name
            )

    def go_away(self) -> None:
        """Refuse every call for a while."""
        self._away_until_s = self.world.timeline.now_s + self.world.chaos.between(*AWAY_S)

    def lost(self, fate: str) -> UnknownOutcomeError:
        """Return the error of a lost connection; often also make the store unreachable."""
        if self.world.chaos.below(2):
            self.go_away()
        return UnknownOutcomeError(
            f"the simulated connection was lost; the write was {fate}", got=fate
        )

    def held(self, table: str) -> Contents:
        """Return the contents of a table, or of a copy of one."""
        found = self.copies if table in self.copies else self.contents
        return found.get(table, Contents())

    def swap(
        self,
        writer: SimulatedProcess,
        replacements: Sequence[Replacement],
        together: tuple[str, ...],
    ) -> bool:
        """Compare the ledgers of some tables, and set them and some rows."""
        versions: dict[str, tuple[Contents, Contents]] = {}
        for each in replacements:
            before = self.held(each.backend.table.name)
            if before.ledger != each.expected:
                return False
            rows = {**before.rows, **each.changes}
            kept = {key: row for key, row in rows.items() if row is not None}
            versions[each.backend.table.name] = before, Contents(each.ledger, kept)
        for table, (before, after) in versions.items():
            if table in self.copies:
                what = f"{writer.name} wrote to the copy of table {table} in {self.name!r}"
                self.world.leftovers.found.append(what)
            self.contents[table] = after
            for clone in self.clones:
                clone.copies[table] = before
        self.history.stored(self.world.timeline.now_s, writer, versions, together)
        return True


class SimulatedBackend(RowBackend):
    """One state in a :class:`SimulatedStore`, opened by one process."""

    shared_by_processes = False

    def __init__(self, store: SimulatedStore, table: StateTable) -> None:
        super().__init__(table)
        self._store = store
        self._process = store.world.current
        store.opened[self._process] = store.opened.get(self._process, 0) + 1
        self._open = True
        self._told = store.database if store.database and store.world.tells_database() else None

    def load(self) -> Contents:
        """Read the contents."""
        self._process.checkpoint("store")
        self._store.check_reachable()
        return self._store.held(self.table.name)

    def database(self) -> Database | None:
        """Return the identity of the store; not always, so that terms share differently."""
        if self._told is not None:
            self._process.checkpoint("store")
            self._store.check_reachable()
            self._store.told.append(self)
        return self._told

    @property
    def term(self) -> tuple[int, str] | None:
        """The epoch and the term that have claimed the state; None before."""
        claim = self.claimant
        return None if claim is None else (claim.epoch, claim.term)

    def _together(self) -> tuple[str, ...]:
        """Return the tables that share transactions with this one in its term."""
        told = self._store.told if self in self._store.told else [self]
        return tuple(each.table.name for each in told if each.term == self.term)

    def load_together(self, backends: Sequence[RowBackend]) -> list[Contents]:
        """Read the contents of several tables of this store, or of its copies of them."""
        self._process.checkpoint("store")
        self._store.check_reachable()
        return [self._store.held(backend.table.name) for backend in backends]

    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> bool:
        """Compare and set. The outcome may stay unknown to the caller."""
        return self.replace_together([Replacement(self, expected, ledger, changes)])

    def replace_together(self, replacements: Sequence[Replacement]) -> bool:
        """Compare and set several tables, all or none, even if it happens late."""
        self._process.checkpoint("store write")
        store, chaos, process = self._store, self._store.world.chaos, self._process
        store.check_reachable()
        new = replacements, self._together()
        if chaos.happens("store_lost"):
            raise store.lost("lost")
        if chaos.happens("store_late"):
            delay_s = chaos.between(0.0, SLOW_S[0])

            def arrive() -> None:
                store.swap(process, *new)

            store.world.timeline.after(delay_s, arrive)
            raise store.lost("still on its way")
        written = store.swap(process, *new)
        process.checkpoint("store written")
        if chaos.happens("store_after"):
            raise store.lost("done" if written else "refused")
        return written

    def close(self) -> None:
        """Count that the backend is closed; it must be, unless its process is killed."""
        if self._open:
            self._open = False
            self._store.opened[self._process] -= 1


Output = list[Record]

EARLIER_RECORDS_MAX = 20


class SimulatedCarrier(LocalCarrier):
    """Moves envelopes inside one simulated process."""

    def __init__(self, process: SimulatedProcess, slots: int) -> None:
        super().__init__(slots)
        self._process = process
        self._recomputed = itertools.count(1_000_000)
        self._earlier: deque[tuple[int, bytes]] = deque(maxlen=EARLIER_RECORDS_MAX)

    def process(self, run: Run) -> RunOutput:
        """Run the processing phase of a run, unless the job gets lost."""
        self._process.checkpoint("job")
        self._may_get_lost(run.tag)
        return super().process(run)

    def commit(
        self, processed: RunOutput, attempt: TransactionAttempt, permits: Permits = no_permits
    ) -> list[bytes]:
        """Run the commit phase of one attempt, unless the job gets lost."""
        self._process.checkpoint("commit job")
        self._may_get_lost(processed.run.tag)
        return super().commit(processed, attempt, permits)

    def compute(
        self,
        stage: StageContext,
        records: Sequence[bytes],
        rows: Sequence[pa.RecordBatch] = (),
        permits: Permits = no_permits,
    ) -> Iterable[Record]:
        """Run one level in one slot, perhaps twice, and return most of its output."""
        chaos = self._process.world.chaos
        self._process.checkpoint("task")
        output: Output = list(super().compute(stage, records, rows, permits))
        if chaos.happens("recompute"):
            with self._process.world.reading_otherwise():
                other = replace(stage, task_id=next(self._recomputed))
                again: Output = list(super().compute(other, records, rows, permits))
            kept = {address for address in _addresses(output, again) if chaos.below(2)}
            output = [r for r in output if r[0] in kept] + [r for r in again if r[0] not in kept]
        if output and chaos.happens("envelope_doubled"):
            output.append(output[chaos.below(len(output))])
        if output and chaos.happens("envelope_lost"):
            del output[chaos.below(len(output))]
        if self._earlier and chaos.happens("envelope_late"):
            output.append(self._earlier[chaos.below(len(self._earlier))])
        self._earlier.extend(output[:EARLIER_RECORDS_MAX])
        return output

    def _may_get_lost(self, tag: str) -> None:
        chaos = self._process.world.chaos
        if chaos.happens("job_lost"):
            counted = chaos.below(2) == 1
            raise RunLostError(f"the simulated job {tag} got lost", tag=tag, counted=counted)


def _addresses(*outputs: Output) -> list[int]:
    return sorted({address for output in outputs for address, _ in output})
