"""The verb ``trial``: computes txids of the past with a changed program, beside the running one.

The txids run as the attempts that are stored, with the plan, the planned time, the versions of
lookups and the pace of then. Each state begins as :mod:`txtopo.operations.beginnings` says, and
takes the writes in memory. Nothing of the running topology is touched: not ZooKeeper, a store or a
sink; and no emitter is told of a commit. What user code writes elsewhere by itself cannot be
prevented.

Rules
-----
1. With the program that runs (``against``), both compute the same txids from the same rows, one
   txid after the other. So their tables and times can be compared whatever the stores have kept.
2. Without it, a table is compared with what its store held after the last txid. That is left out if
   the store no longer has it; and if the state, or one above it, did not begin with the rows that
   the running program had then.
3. A table is equal only if it was compared. So a trial is equal only if each table that both
   programs have was compared, and is equal; and if there is one. A table without a value column in
   common is not compared. Nor is one to which neither program wrote, below a state that did not
   begin with the rows of then: that state may have taken all rows for late or repeated ones.
4. A failure ends the trial, and no table is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from txtopo.config import Config
from txtopo.ensemble.nodes import metadata_from_json
from txtopo.errors import StateUsageError, TopologyChanged
from txtopo.fingerprint import differences, in_words, setting_for
from txtopo.log_records import one_line
from txtopo.metadata import BatchMetadata
from txtopo.operations.beginnings import Beginnings
from txtopo.operations.past_program import PastProgram, check_stamp
from txtopo.operations.program import known_topology
from txtopo.operations.replay import DIFFERS, EQUAL, NOT_COMPARED
from txtopo.operations.scratch import Scratch
from txtopo.operations.session import Access, OperatorSession, open_operator_session
from txtopo.operations.stored_history import StoredHistory, check_driven
from txtopo.topology.changes import added_states, other_spouts, refused_change
from txtopo.topology.graph import fingerprint

if TYPE_CHECKING:
    from txtopo.builders.transactional import Topology
    from txtopo.ensemble.nodes import StoredBatch
    from txtopo.fingerprint import StateName
    from txtopo.operations.beginnings import Beginning
    from txtopo.operations.recording import Raised
    from txtopo.operations.rerun import RerunOutcome
    from txtopo.operations.rerun_carrier import Place
    from txtopo.operations.table_comparison import TableComparison
    from txtopo.state.backend import StateTable
    from txtopo.topology.graph import Graph

REFUSED = "a start would refuse this program with any allow_change"


def trial(
    topology: Topology,
    first: int,
    last: int | None = None,
    config: Config = Config(),
    *,
    against: Topology | None = None,
    store: str | None = None,
    on: Place = "local",
    access: Access = Access(),
) -> Trial:
    """Compute txids of the past with a changed program, and compare its tables. Callable any time.

    Each table of the running topology is read in one snapshot, which stays open until the end. What
    a txid fails with, such as records that the source no longer has, is part of the result.

    Args:
        topology: The changed program, with the id of the one that runs.
        first: The first txid.
        last: The last one; None for the last that is committed.
        config: As for ``start``.
        against: The program that runs. It computes the same txids, for comparison.
        store: URL of a store in which the rows that the changed program writes are left, in tables
            of their own; None for nowhere.
        on: ``"local"`` runs it in this process, ``"spark"`` in tasks of Spark, as the carrier
            ``rdd`` does; then the row of a failure is not known. DataFrames always need Spark.
        access: How to reach ZooKeeper, if the ``Config`` is not enough; and the session for
            Spark, by default the active one or a new one.

    Raises:
        StateUsageError: A txid is not in ZooKeeper, the range is empty, or a table of *store*
            exists; the message says what is there.
        TopologyChanged: The stored positions mean nothing to a spout of the program.
        CoordinatorUnavailable: ZooKeeper cannot be reached.
        StoreUnavailable: A store cannot be reached.
    """
    if against is not None and against.id != topology.id:
        raise StateUsageError(
            f"the programs belong to different topologies; got {topology.id!r} and "
            f"{against.id!r}; expected one id, because both compute its txids",
            got=topology.id,
            expected=against.id,
        )
    with open_operator_session(topology, config, access) as session, ExitStack() as stack:
        check_driven(session)
        history = StoredHistory(session)
        last = history.current - 1 if last is None else last
        if first > last:
            raise StateUsageError(
                f"there are no txids to compute; got first txid {first}, which is after {last}; "
                f"topology {session.graph.id!r} has committed txids up to {history.current - 1}",
                txid=first,
            )
        for txid in (first, last):
            history.check(txid)
        graphs = [session.graph] + ([] if against is None else [against.graph])
        trying = _Trying(session, history, graphs, range(first, last + 1), on, access.spark, stack)
        return trying.tried(store)


@dataclass(frozen=True, slots=True)
class TriedState:
    """A state of the changed program after a trial.

    Attributes:
        table: Its schema.
        begins: What it began with, in words.
        written: How many keys were written.
        statements: How many statements of users were made; none was executed.
        compared_with: What it was compared with, or why it was not.
        comparison: How it differs; None if it was not compared.
        statements_differ: Whether the running program made other statements.
    """

    table: StateTable = field(repr=False)
    begins: str
    written: int
    statements: int
    compared_with: str
    comparison: TableComparison | None
    statements_differ: bool = False

    @property
    def differs(self) -> bool:
        """Whether it was compared, and differs."""
        compared = self.comparison is not None and bool(self.comparison.differences)
        return compared or self.statements_differ


@dataclass(frozen=True, slots=True)
class TrialFailure:
    """What ended a trial.

    Attributes:
        txid: The txid that failed.
        component: Id of the component; empty if it is not known.
        error: The error, in one line.
        raised: What user code raised; None if that is not known.
        running: Whether the program that runs failed, not the changed one.
    """

    txid: int
    component: str
    error: str
    raised: Raised | None = field(repr=False)
    running: bool


@dataclass(frozen=True, slots=True)
class Trial:
    """What :func:`trial` found; ``print`` shows it.

    Attributes:
        topology_id: Id of the topology.
        first_txid: The first txid.
        last_txid: The last txid.
        begun_txid: The txid that was computed first: an earlier one, if a state can only be read
            as of the beginning of a group.
        differences: How the program differs from the one that ran, in words.
        start: What a start would say about it; empty if it would start.
        spouts: For each spout ``"equal"``, how its rows differ, or why they were not compared.
        states: Each state, by ``component.state``.
        gone: The states that only the running program has.
        times_s: How long each txid took, in seconds; the first one also loads code.
        running_times_s: How long each took with the program that runs; empty without it.
        failure: What ended the trial; None if nothing did.
        tables: The tables in the scratch store; empty without one.
    """

    topology_id: str
    first_txid: int
    last_txid: int
    begun_txid: int
    differences: tuple[str, ...]
    start: tuple[str, ...]
    spouts: Mapping[str, str]
    states: Mapping[str, TriedState] = field(repr=False)
    gone: tuple[str, ...]
    times_s: tuple[float, ...] = field(repr=False)
    running_times_s: tuple[float, ...] = field(repr=False)
    failure: TrialFailure | None
    tables: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether both programs have tables in common, and all of these were found equal."""
        common = [each for each in self.states.values() if each.compared_with != ONLY_HERE]
        compared = all(each.comparison is not None and not each.differs for each in common)
        return self.failure is None and bool(common) and compared

    @property
    def differing(self) -> tuple[str, ...]:
        """The states that differ."""
        return tuple(name for name, each in self.states.items() if each.differs)

    def __str__(self) -> str:
        from txtopo.operations.trial_text import trial_text

        return trial_text(self)


ONLY_HERE = f"{NOT_COMPARED}: the running program has no such table"


class _Trying:
    """One call of :func:`trial`."""

    def __init__(
        self,
        session: OperatorSession,
        history: StoredHistory,
        graphs: list[Graph],
        txids: range,
        on: Place,
        spark: object | None,
        stack: ExitStack,
    ) -> None:
        self._session, self._history, self._txids = session, history, txids
        self._graphs, self._on, self._spark, self._stack = graphs, on, spark, stack
        self._known = known_topology(session)
        self._differing_from: dict[str, int] = {}
        self._uncompared = set[str]()
        self._starving: list[dict[str, str]] = []

    def tried(self, store: str | None) -> Trial:
        changes, start = self._looked_at()
        begins, beginnings = self._beginnings()
        batches = {txid: self._history.processed(txid) for txid in range(begins, self._txids.stop)}
        programs = [
            PastProgram(
                graph,
                self._session.config,
                {name: each.overlay for name, each in states.items()},
                self._spark,
                self._stack,
                self._on,
            )
            for graph, states in zip(self._graphs, beginnings, strict=True)
        ]
        metadata = self._metadata(begins, batches, programs)
        start += [each.refused for each in beginnings[0].values() if each.refused is not None]
        scratch = None
        if store is not None:
            scratch = Scratch(store, self._graphs[0], self._graphs, self._stack)
        failure = self._run(programs, batches, metadata)
        if scratch is not None:
            scratch.write(self._txids[-1], _written_rows(beginnings[0]))
        return Trial(
            topology_id=self._session.graph.id,
            first_txid=self._txids[0],
            last_txid=self._txids[-1],
            begun_txid=begins,
            differences=tuple(changes),
            start=tuple(start),
            spouts=self._spouts(failure),
            states=self._states(begins, beginnings, failure),
            gone=self._gone(),
            times_s=tuple(programs[0].times_s),
            running_times_s=tuple(programs[1].times_s) if len(programs) > 1 else (),
            failure=failure,
            tables=() if scratch is None else scratch.tables,
        )

    def _looked_at(self) -> tuple[list[str], list[str]]:
        """Return how the program differs from the one that ran, and what a start would say."""
        start: list[str] = []
        if self._known is None:
            return [], start
        for graph in self._graphs:
            if (why := other_spouts(self._known, fingerprint(graph))) is not None:
                raise TopologyChanged(
                    f"the txids of the past cannot be read: {why}", changes=(why,)
                )
        graph = self._graphs[0]
        program = fingerprint(graph)
        found = differences(self._known, program)
        if not self._session.config.may_change(*(each.change for each in found)):
            start.append(f"a start would need {setting_for(found)}")
        added = added_states(program, self._known)
        if (why := refused_change(graph, self._known, added)) is not None:
            start.append(f"{REFUSED}: {why}")
        for name, owner in self._session.owners.items():
            at = (owner.component, owner.state)
            kept = at in added or program.states[at] in self._known.states.values()
            if not kept and not self._session.backends[name].evolves:
                start.append(f"{REFUSED}: the store of {in_words(at)} cannot alter its table")
        return [each.text for each in found], start

    def _beginnings(self) -> tuple[int, list[dict[StateName, Beginning]]]:
        """Return the txid to begin with, and for each program its states before it."""
        begins = self._history.begins(self._txids[0])
        stack, current = self._stack.enter_context(ExitStack()), self._history.current
        while True:
            opened = Beginnings(self._session.graph.id, self._known, begins, current, stack)
            found = [opened.of(graph) for graph in self._graphs]
            earlier = min(opened.first_txid(each) for each in found)
            if earlier == begins:
                return begins, found
            # All states have to begin together, so all are read as of the earlier one.
            stack.close()
            begins = earlier

    def _metadata(
        self, begins: int, batches: Mapping[int, StoredBatch], programs: list[PastProgram]
    ) -> dict[int, BatchMetadata]:
        """Return the metadata of each txid, and of the one before where it is needed."""
        found = {txid: metadata_from_json(txid, each.metadata) for txid, each in batches.items()}
        if any(each.needs_previous(each.metadata(begins, found)) for each in programs):
            before = begins - 1
            found[before] = (
                metadata_from_json(before, self._history.check(before).metadata)
                if before
                else BatchMetadata()
            )
        for graph in self._graphs:
            for txid in batches:
                check_stamp(graph, txid, found[txid].stamp)
        return found

    def _run(
        self,
        programs: list[PastProgram],
        batches: Mapping[int, StoredBatch],
        metadata: Mapping[int, BatchMetadata],
    ) -> TrialFailure | None:
        for txid, batch in batches.items():
            outcomes = []
            for at, program in enumerate(programs):
                outcome = program.run(batch, metadata)
                if (failed := outcome.failure) is not None:
                    raised = program.recording.raised
                    component = failed.component or ("" if raised is None else raised.component)
                    return TrialFailure(txid, component, one_line(failed.error), raised, at > 0)
                outcomes.append(outcome)
            self._compare_spouts(txid, batch, outcomes)
        return None

    def _compare_spouts(self, txid: int, batch: StoredBatch, outcomes: list[RerunOutcome]) -> None:
        ours, *others = [each.batch for each in outcomes if each.batch is not None]
        there = batch.content if not others else others[0].metadata.content
        here = ours.metadata.content or {}
        for spout in self._graphs[0].spouts:
            id = spout.id
            if there is not None and id in there and id in here:
                part = spout.spout_kind.differing(there[id], here[id])
                differs = part is not None or _rows(there[id]) != _rows(here[id])
                alike = there[id].keys() == here[id].keys()
            elif others:
                differs, alike = ours.tuples.get(id) != others[0].tuples.get(id), False
            elif not ours.metadata.takes_part(id):
                continue
            else:
                differs = alike = False
            if differs:
                self._differing_from.setdefault(id, txid)
            elif not alike:
                self._uncompared.add(id)

    def _spouts(self, failure: TrialFailure | None) -> dict[str, str]:
        found = {}
        for spout in self._graphs[0].spouts:
            if (txid := self._differing_from.get(spout.id)) is not None:
                found[spout.id] = f"{DIFFERS} from txid {txid} on: it delivered other rows"
            elif failure is not None:
                found[spout.id] = f"{NOT_COMPARED}: txid {failure.txid} failed"
            elif spout.id in self._uncompared:
                found[spout.id] = f"{NOT_COMPARED}: only the number of its rows is known"
            else:
                found[spout.id] = EQUAL
        return found

    def _states(
        self,
        begins: int,
        beginnings: list[dict[StateName, Beginning]],
        failure: TrialFailure | None,
    ) -> dict[str, TriedState]:
        ours, *others = beginnings
        inexact = _inexact(self._graphs[0], ours)
        self._starving = [
            _starving(graph, _inexact(graph, states))
            for graph, states in zip(self._graphs, beginnings, strict=True)
        ]
        found = {}
        for name, each in ours.items():
            if failure is not None:
                told: _Told = f"{NOT_COMPARED}: txid {failure.txid} failed", None, False
            elif others:
                told = self._against(name, each, others[0])
            else:
                told = self._with_store(name, each, inexact, begins)
            written = each.overlay.written.values()
            found[".".join(name)] = TriedState(
                each.table,
                each.how,
                len({key for one in written for key in one.changes}),
                sum(len(one.statements) for one in written),
                *told,
            )
        return found

    def _against(
        self, name: StateName, ours: Beginning, others: Mapping[StateName, Beginning]
    ) -> _Told:
        from txtopo.operations.table_comparison import compared_overlays

        its_name = _counterpart(self._graphs, name)
        if its_name is None:
            return ONLY_HERE, None, False
        other = others[its_name]
        if ours.table.key != other.table.key:
            return f"{NOT_COMPARED}: the key has other columns", None, False
        if ours.refused is not None or other.refused is not None:
            return f"{NOT_COMPARED}: the programs begin with other rows", None, False
        if (why := _no_column(ours.table, other.table)) is not None:
            return why, None, False
        found = compared_overlays(ours.overlay, ours.table, other.overlay, other.table)
        starved = self._starving[0].get(name[0]) or self._starving[1].get(its_name[0])
        if starved and not (found.keys or _statements(ours) or _statements(other)):
            why = f"no row was written, below {starved}, which does not begin with the rows of then"
            return f"{NOT_COMPARED}: {why}", None, False
        return RUNNING, found, _statements(ours) != _statements(other)

    def _with_store(
        self, name: StateName, ours: Beginning, inexact: Mapping[str, str], begins: int
    ) -> _Told:
        from txtopo.operations.table_comparison import compared_stored

        last, component = self._txids[-1], self._graphs[0].components[name[0]]
        if component.traits.state is not None:
            why = "what was sent is not read back"
        elif ours.stored is None and ours.refused is None:
            return ONLY_HERE, None, False
        elif name[0] in inexact:
            why = f"{inexact[name[0]]} does not begin as of txid {begins - 1}"
        elif last >= self._history.current:
            why = f"txid {last} is not committed"
        elif _statements(ours):
            why = "statements were not executed"
        else:
            assert ours.stored is not None
            rows = ours.stored.rows_after(last, self._stack)
            if (no_column := _no_column(ours.table, ours.stored.table)) is not None:
                return no_column, None, False
            if rows is not None:
                found = compared_stored(ours.overlay, ours.table, rows, ours.stored.table, begins)
                return f"what its store held after txid {last}", found, False
            why = f"its store no longer has what it held after txid {last}"
        return f"{NOT_COMPARED}: {why}", None, False

    def _gone(self) -> tuple[str, ...]:
        """Return the states that only the running program has."""
        program = fingerprint(self._graphs[0])
        ran = self._known if len(self._graphs) == 1 else fingerprint(self._graphs[1])
        if ran is None:
            return ()
        tables = {each.table for each in program.states.values()}
        return tuple(
            ".".join(name)
            for name, each in ran.states.items()
            if name not in program.states and each.table not in tables
        )


_Told = tuple[str, "TableComparison | None", bool]
"""What a state was compared with, how it differs, and whether its statements do."""

RUNNING = "the running program over the same txids"


def _counterpart(graphs: list[Graph], name: StateName) -> StateName | None:
    """Return the state of the running program with the same table, or with the same name."""
    state = graphs[0].components[name[0]].states[name[1]]
    running = graphs[1].components
    for component in running.values():
        for other, each in component.states.items():
            same_table = state.layout().name == each.layout().name
            if same_table and state.location == each.location:
                return component.id, other
    return name if name[0] in running and name[1] in running[name[0]].states else None


def _no_column(here: StateTable, there: StateTable) -> str | None:
    """Return why tables without a value column in common are not compared; None if they are."""
    alike = not here.value.names and not there.value.names
    if alike or not set(here.value.names).isdisjoint(there.value.names):
        return None
    return f"{NOT_COMPARED}: they have no value column in common"


def _inexact(graph: Graph, states: Mapping[StateName, Beginning]) -> dict[str, str]:
    """Return the components that do not compute what they would have computed then.

    Returns:
        For each the state that is to blame, in words.
    """
    found: dict[str, str] = {}
    for id, component in graph.components.items():  # what is above comes first
        above = (found[each.source] for each in component.subscriptions if each.source in found)
        own = (in_words((id, name)) for name in component.states if not states[id, name].exact)
        why = next(chain(above, own), None)
        if why is not None:
            found[id] = why
    return found


def _starving(graph: Graph, inexact: Mapping[str, str]) -> dict[str, str]:
    """Return the components to which a state above may have let no row pass, as :func:`_inexact`.

    Args:
        graph: The program.
        inexact: What :func:`_inexact` returns for it.
    """
    found: dict[str, str] = {}
    for id, component in graph.components.items():
        above = (inexact[each.source] for each in component.subscriptions if each.source in inexact)
        if (why := next(above, None)) is not None:
            found[id] = why
    return found


def _statements(each: Beginning) -> list[object]:
    return [
        (txid, str(one.statement), one.parameters, one.undo)
        for txid, written in each.overlay.written.items()
        for one in written.statements
    ]


def _rows(content: Mapping[str, Any]) -> int:
    """Return how many rows a spout brought: each part has their number, and a digest."""
    return sum(number for number, _ in content.values())


def _written_rows(states: Mapping[StateName, Beginning]) -> dict[StateName, Any]:
    from txtopo.operations.table_comparison import values_of, written_keys

    return {
        name: values_of(each.overlay, written_keys(each.overlay)) for name, each in states.items()
    }
