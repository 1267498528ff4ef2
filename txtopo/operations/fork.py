"""The verb ``fork``, which makes a second topology that continues from a txid of a first one.

The new topology has an id of its own, copies of the states in other stores, and the positions of
the spouts as of one txid. From there both continue, each exactly once. The original may be running:
it is read (:mod:`txtopo.operations.original`), and nothing of it is written.

Rules
-----
1. The first write of all names the verb in ``/current`` of the new id, together with its epoch. So
   no coordinator starts with a part of the copies, nor with none.
2. The txid, and the metadata that says where the spouts were, are stored there before a state is
   copied. What is made of them later comes from there, whatever the original does meanwhile.
3. Each copy is one write, "A state that is a copy" in :mod:`txtopo.state.ledger`, and those of one
   database share a transaction.
4. In one write the metadata, ``current`` behind the txid, and the removal of the verb. Before it,
   each ledger must hold a copy of that txid.
5. What cannot be copied is refused before any connection is opened: a state that is not named, a
   sink that belongs to its topic, a table of a user's own, dead letters that are not named
   themselves.

If the call is repeated, states that hold the noted txid stay as they are. If another state of the
original no longer holds it, all are copied again as of a newer txid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from txtopo.attempt import CopyAttempt, TransactionAttempt
from txtopo.config import Config
from txtopo.dead_letters import STREAM
from txtopo.ensemble.journal import JournalContents, put_batch, unfinished
from txtopo.ensemble.nodes import (
    CURRENT,
    StoredBatch,
    attempt_to_json,
    current_of,
    operation_of,
)
from txtopo.ensemble.store import Put
from txtopo.errors import (
    ForeignStateError,
    StateUsageError,
    StoreUnavailable,
    TxtopoError,
    nearest,
)
from txtopo.metadata import Json
from txtopo.operations.forget import FORK
from txtopo.operations.original import Moment, Original
from txtopo.operations.plan import (
    Plan,
    VerbStep,
    VerbSteps,
    check_unfinished,
    make_plan,
    note_begun,
)
from txtopo.operations.program import SAME_PROGRAM, changed, differences_of
from txtopo.operations.session import Access, OperatorSession, VerbClaim, open_operator_session
from txtopo.state.backend import Key, Merges, Puts, Snapshot, StateTable, Values, Writes
from txtopo.state.ledger import Ledger
from txtopo.state.registry import State
from txtopo.topology.checks import check_states
from txtopo.topology.component import Component, check_id
from txtopo.topology.elsewhere import emitters_to_ask
from txtopo.topology.graph import Graph
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.builders.transactional import Topology

WAIT_S = 30.0
"""How long a running topology is watched for a moment at which all states hold one txid."""


def fork(
    topology: Topology,
    id: str,
    to: str | Mapping[str, str],
    config: Config = Config(),
    *,
    at: int | None = None,
    wait_s: float = WAIT_S,
    access: Access = Access(),
) -> Plan:
    """Make a topology of another id that continues from a txid of this one, in other stores.

    Afterwards the same program runs it, with the new id and the new URLs.

    Args:
        topology: The topology that is copied; it may be running.
        id: Id of the new topology.
        to: The URL of the store for all states, or a URL for each, by ``component.state``. A table
            for dead letters has to be named itself.
        config: As for ``start``.
        at: The txid; None for the newest committed one that all states hold. An earlier one needs
            states that keep history, and its metadata, see ``Config.history_txids``.
        wait_s: How many seconds to wait until all states hold one committed txid.
        access: How to reach ZooKeeper, if the ``Config`` is not enough.

    Raises:
        StateUsageError: A state cannot be copied, the txid cannot be read, the id is in use, or the
            topology has committed nothing; nothing was written.
        ForeignStateError: A table in the new store belongs to another topology; nothing was
            written.
        TopologyChanged: It is another topology than the one that ran; nothing was written.
        CoordinatorActive: A coordinator leads the new topology.
    """
    forked = _forked(topology.graph, check_id("topology", id), to)
    places: dict[str, Json] = {name: one.shown_url for name, one in _states(forked).items()}
    arguments: dict[str, Json] = {"topology": topology.id, "at": at, "to": places}
    verb = _Fork(topology, config, access, at, wait_s, arguments)
    return make_plan(verb, replace(topology, graph=forked), config, access)


@dataclass(frozen=True, slots=True)
class _Fork:
    topology: Topology
    config: Config
    access: Access
    at: int | None
    wait_s: float
    arguments: dict[str, Json]
    name: str = FORK

    def objection(self, session: OperatorSession) -> str | None:
        return SAME_PROGRAM

    def look(self, session: OperatorSession) -> VerbSteps:
        contents = session.contents()
        resumed = check_unfinished(self, contents)
        if session.known and not resumed:
            if _origin(session) == self.arguments:
                return VerbSteps()
            raise self._exists(session, contents)
        ledgers = session.ledgers()
        for name, ledger in ledgers.items():
            if ledger is not None and not (resumed and session.may_claim(name, ledger)):
                raise _taken(session, name, ledger)
        steps = [VerbStep(self._finish_text(session), self._finish)]
        if not self._is_copied(contents, ledgers):
            with self._original() as original:
                self._check(original.session)
                if self.at is not None:
                    with original.moment(list(ledgers), self.at):
                        pass
            steps.insert(0, VerbStep(self._copy_text(session), self._copy))
        return VerbSteps(steps, ledgers, makes_topology=True)

    @contextmanager
    def _original(self) -> Iterator[Original]:
        with open_operator_session(self.topology, self.config, self.access) as session:
            yield Original(session, self.wait_s)

    def _check(self, original: OperatorSession) -> None:
        """Check that the original ran, with this program, and has committed the txid."""
        id = original.graph.id
        # Not its batches: it may delete some meanwhile.
        node = original.state.get(CURRENT)
        if (operation := operation_of(node)) is not None:
            raise unfinished(operation)
        if differences := differences_of(original):
            raise changed(self.name, original, differences, SAME_PROGRAM)
        committed = 0 if node is None else current_of(node) - 1
        if not committed:
            what = "never ran with this ZooKeeper" if node is None else "has committed no txid"
            raise StateUsageError(
                f"topology {id!r} {what}, so there is nothing to continue from; expected one that "
                "has committed a txid; start the program under the new id instead",
                topology=id,
            )
        if self.at is not None and not 1 <= self.at <= committed:
            raise StateUsageError(
                f"cannot fork {id!r} at txid {self.at}; expected one from 1 to {committed}, the "
                "last committed txid",
                txid=self.at,
                committed_txid=committed,
            )

    def _exists(self, session: OperatorSession, contents: JournalContents) -> StateUsageError:
        return StateUsageError(
            f"topology {session.graph.id!r} already exists, with txid {contents.current - 1} as "
            "its last committed one; expected an unused id; choose another, or give up that "
            "topology with txtopo.operations.forget and drop its tables",
            topology=session.graph.id,
            committed_txid=contents.current - 1,
        )

    def _is_copied(self, contents: JournalContents, ledgers: Mapping[str, Ledger | None]) -> bool:
        noted = _noted(contents)
        return noted is not None and not _not_copied(ledgers, noted.attempt.txid)

    def _copy_text(self, session: OperatorSession) -> str:
        txid = "the newest txid that all of them hold" if self.at is None else f"txid {self.at}"
        before, after = _states(self.topology.graph), _states(session.graph)
        states = "; ".join(
            f"state {name!r}, table {session.table(name).name!r}, from {before[name].shown_url} to "
            f"{one.shown_url}"
            for name, one in after.items()
        )
        return f"copy what {txid} left in {self.topology.id!r}: {states or 'no state'}"

    def _finish_text(self, session: OperatorSession) -> str:
        notes = "".join(f"; {note}" for note in _notes(session.graph))
        return (
            f"let {session.graph.id!r} continue with the next txid, where the spouts of "
            f"{self.topology.id!r} were{notes}"
        )

    def _copy(self, claim: VerbClaim) -> None:
        session = claim.session
        noted = _noted(session.contents())
        with self._original() as original:
            self._check(original.session)
            ledgers = session.ledgers()
            if noted is not None and self._continued(original, claim, noted, ledgers):
                return
            with original.moment(list(ledgers), self.at) as moment:
                for name, ledger in ledgers.items():
                    self._check_replaceable(session, name, ledger, moment, noted)
                batch: dict[str, Json] = {
                    "attempt": attempt_to_json(moment.batch.attempt),
                    "metadata": moment.batch.metadata,
                }
                claim.write(note_begun(self, 1, txid=moment.txid, batch=batch))
                self._commit(original, claim, moment)

    def _continued(
        self,
        original: Original,
        claim: VerbClaim,
        noted: StoredBatch,
        ledgers: Mapping[str, Ledger | None],
    ) -> bool:
        """Copy what an earlier call has left out, if the original still holds the noted txid."""
        txid = noted.attempt.txid
        with ExitStack() as stack:
            try:
                opened = original.moment(_not_copied(ledgers, txid), txid)
                moment = stack.enter_context(opened)
            except (StateUsageError, StoreUnavailable):
                return False
            if moment.batch.attempt != noted.attempt:
                return False
            self._commit(original, claim, moment)
        return True

    def _commit(self, original: Original, claim: VerbClaim, moment: Moment) -> None:
        def writes(name: str) -> Writes:
            snapshot, table = moment.snapshots[name], claim.session.table(name)
            with claim.session.backends[name].snapshot() as there:
                copied = _copied(table, snapshot, there)
            original.check_unchanged(name, snapshot)
            return copied

        attempt = CopyAttempt(0, 0, claim.epoch, moment.txid, term=claim.term)
        claim.commit(attempt, moment.snapshots.keys(), writes)

    def _check_replaceable(
        self,
        session: OperatorSession,
        name: str,
        ledger: Ledger | None,
        moment: Moment,
        noted: StoredBatch | None,
    ) -> None:
        """Check that an earlier copy is replaced, or is of the same attempt.

        A log can only be appended to. A copy of the same txid stays as it is, and its ledger does
        not name the attempt at the original; only the note does.
        """
        txid = moment.txid
        if ledger is None or not ledger.is_copy:
            return
        if ledger.txid == txid:
            if noted is not None and noted.attempt == moment.batch.attempt:
                return
            raise StateUsageError(
                f"state {name!r} holds a copy of txid {txid} from before another attempt wrote "
                f"that txid of {self.topology.id!r} again; got attempt {moment.batch.attempt} "
                "now; was it rewound in the meantime? expected a copy of the same attempt; give "
                f"up the fork with txtopo.operations.forget of {session.graph.id!r}, and fork "
                "into another store; or, without at=, let the original commit another txid and "
                "call this again",
                state=name,
                txid=txid,
            )
        if session.table(name).mode != "log":
            return
        raise StateUsageError(
            f"state {name!r} is in mode 'log' and holds a copy of txid {ledger.txid}, which other "
            f"states of {self.topology.id!r} no longer have; expected a copy of txid {txid}; give "
            f"up the fork with txtopo.operations.forget of {session.graph.id!r}, and fork into "
            "another store; deactivate the original during the copy, or use one database for all "
            "copies",
            state=name,
            txid=txid,
        )

    def _finish(self, claim: VerbClaim) -> None:
        session = claim.session
        noted = _noted(session.contents())
        assert noted is not None, "the copies are noted before they are made"
        txid = noted.attempt.txid
        if missing := _not_copied(session.ledgers(), txid):
            raise StateUsageError(
                f"state {missing[0]!r} holds no copy of txid {txid}; expected the copy of the "
                "previous step; was its table changed in the meantime? call fork again",
                state=missing[0],
                txid=txid,
            )
        claim.write(
            put_batch(StoredBatch(TransactionAttempt(txid), noted.metadata, verb=FORK)),
            Put(CURRENT, {"current": txid + 1, "forked": {**self.arguments, "txid": txid}}),
        )


def _noted(contents: JournalContents) -> StoredBatch | None:
    """Return the batch of the original that an unfinished fork has noted; None for none yet."""
    match contents.operation:
        case {
            "txid": int(txid),
            "batch": {"attempt": [int(epoch), int(number), str(term)], "metadata": metadata},
        }:
            return StoredBatch(TransactionAttempt(txid, number, epoch, term=term), metadata)
    return None


def _origin(session: OperatorSession) -> dict[str, Json] | None:
    """Return the arguments of the fork that made a topology which has not advanced since."""
    node = session.state.get(CURRENT)
    forked = node.value.get("forked") if node and isinstance(node.value, dict) else None
    if not isinstance(forked, dict):
        return None
    return {name: value for name, value in forked.items() if name != "txid"}


def _not_copied(ledgers: Mapping[str, Ledger | None], txid: int) -> list[str]:
    """Return the states that do not hold a copy of a txid."""
    return [
        name
        for name, each in ledgers.items()
        if each is None or not each.is_copy or each.txid != txid
    ]


def _copied(table: StateTable, then: Snapshot, there: Snapshot) -> Writes:
    """Return the writes that make a state hold what a snapshot shows, whatever it holds."""
    rows: dict[Key, Values | None] = {
        key: values for key, row in then.items() if (values := row.visible()) is not None
    }
    if table.mode == "log":
        return Merges(_partials(table, rows))
    gone = [key for key, _ in there.items() if key not in rows] if _is_filled(there) else []
    return Puts(rows | dict.fromkeys(gone))


def _is_filled(there: Snapshot) -> bool:
    return there.ledger is not None and there.ledger.is_copy


def _partials(table: StateTable, rows: Mapping[Key, Values | None]) -> pa.Table:
    import pyarrow as pa

    schema = Fields.of([*table.key, *table.value]).arrow_schema()
    flat = [(*key, *values) for key, values in rows.items() if values is not None]
    columns = list(zip(*flat, strict=True)) if flat else [()] * len(schema)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.table(arrays, schema=schema)


def _taken(session: OperatorSession, name: str, ledger: Ledger) -> TxtopoError:
    """Return the error for a table that has a ledger already."""
    table, url = session.table(name).name, _states(session.graph)[name].shown_url
    if ledger.topology == session.graph.id:
        return StateUsageError(
            f"table {table!r} of state {name!r} in {url} is already claimed for "
            f"{session.graph.id!r}, which ZooKeeper does not list; expected no such table; is "
            "another fork running? call this again; or, if the table is left over from a "
            "ZooKeeper that was wiped, drop the table and its row in the ledger",
            state=name,
        )
    return ForeignStateError(
        f"table {table!r} of state {name!r} in {url} is in use; "
        f"its ledger names {ledger.owner}, with txid {ledger.txid}; expected a store without this "
        "table; copy into another store, or drop the table and its row in the ledger",
        state=name,
        owner=ledger.topology,
    )


def _states(graph: Graph) -> dict[str, State]:
    """Return the states of a topology, as ``component.state``."""
    return {
        f"{component.id}.{name}": state.named(name)
        for component in graph.components.values()
        for name, state in component.states.items()
    }


def _notes(graph: Graph) -> Iterator[str]:
    """Yield what the program of the fork has to have otherwise."""
    own = emitters_to_ask(graph)
    for spout in graph.spouts:
        if (renamed := spout.traits.renamed_in_forks) is not None:
            yield f"in its program, spout {spout.id!r} has {renamed}"
        if spout.id in own:
            yield (
                f"spout {spout.id!r} has your own emitters: if they commit to the source, both "
                "topologies do"
            )


def _forked(graph: Graph, id: str, to: str | Mapping[str, str]) -> Graph:
    """Return the topology under another id, with its states in other stores.

    Raises:
        StateUsageError: A state cannot be copied there; the message names each.
    """
    if id == graph.id:
        raise StateUsageError(
            f"a fork needs its own id; got {id!r}, the id of the topology; choose another",
            topology=id,
        )
    states = _states(graph)
    if not isinstance(to, str) and (unknown := [name for name in to if name not in states]):
        raise StateUsageError(
            f"topology {graph.id!r} has no state {unknown[0]!r}; {nearest(unknown[0], states)}",
            state=unknown[0],
        )
    refused = list(_refused(graph, to))
    if refused:
        raise StateUsageError(
            f"topology {graph.id!r} cannot be forked; {'; '.join(refused)}", topology=graph.id
        )
    components: dict[str, Component] = {}
    for component in graph.components.values():
        moved = {
            name: _moved(
                state, name, id, to if isinstance(to, str) else to[f"{component.id}.{name}"]
            )
            for name, state in component.states.items()
        }
        components[component.id] = replace(component, states=moved)
    check_states(components)
    for name, state in _states(replace(graph, components=components)).items():
        if (state.location, state.table) == (states[name].location, states[name].table):
            raise StateUsageError(
                f"state {name!r} would be copied onto itself; got {state.shown_url}, where table "
                f"{state.table!r} is that of {graph.id!r}; expected another store",
                state=name,
            )
    return replace(graph, id=id, components=components, spout=components[graph.spout.id])


def _moved(state: State, name: str, id: str, url: str) -> State:
    """Return a state as the program of the fork declares it."""
    table = f"{id}_{name}" if state.after_topology else state.table
    return replace(state.at(url), table=table)


def _refused(graph: Graph, to: str | Mapping[str, str]) -> Iterator[str]:
    """Yield why components cannot be forked; connects to nothing."""
    for component in graph.components.values():
        if (why := component.traits.cannot_fork) is not None:
            yield f"{component.id!r}: {why}"
            continue
        letters = any(each.stream == STREAM for each in component.subscriptions)
        for name, state in component.states.items():
            full = f"{component.id}.{name}"
            if state.origin != "made":
                yield (
                    f"state {full!r} is in your own table, which may have other columns; got "
                    "create=False or add_columns=True; expected a table that txtopo has made"
                )
            elif letters and isinstance(to, str):
                yield (
                    f"state {full!r} holds dead letters, which someone processes; expected a "
                    f"separate store for it, as {full}=URL, and one for each other state"
                )
            elif not isinstance(to, str) and full not in to:
                yield f"state {full!r} has no store in the fork; expected {full}=URL"
