"""Outcome: the driver's judgement of a run and of a commit phase, from the records it received.

A run keeps the batches before its first failure and loses the rest. The metadata of a batch becomes
complete here: the positions where its emitters ended are merged over all tasks, and a partition
that emitted nothing keeps its position. The content of a batch is compared with that of the first
attempt at the same txid. A batch with other content counts as failed
(:mod:`txtopo.stages.replays`).

If the commit phase runs in the driver, :func:`commit_in_driver` runs it, without a job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.collector import SeenFields
from txtopo.errors import ConflictingWritesError, NonRepeatableBatch
from txtopo.metadata import BatchMetadata, Json
from txtopo.stages.compiled_topology import Chain, CompiledTopology, Levels, Run
from txtopo.stages.component_times import ComponentTimes
from txtopo.stages.envelopes import (
    Control,
    Envelope,
    Producer,
    TaskFailure,
    WriteSet,
    one_run_each,
    raise_fault,
)
from txtopo.stages.mailboxes import NOWHERE, Records
from txtopo.stages.observer import Observer
from txtopo.stages.permits import Permits, no_permits
from txtopo.stages.replays import ALL_TASKS, AnswersDigest, check_replay
from txtopo.stages.stage import run_stage
from txtopo.stages.stage_context import RunLevel
from txtopo.stages.task_states import StateOpener
from txtopo.stages.user_errors import error_of
from txtopo.state.backend import Key, Puts, Values
from txtopo.state.column_rows import merged_rows
from txtopo.state.statements import Statement

Tuples = Mapping[str, Mapping[str, int]]
"""Number of emitted tuples by component and stream."""


@dataclass(frozen=True, slots=True)
class FailedBatch:
    """The first batch of a run that failed, because user code raised an exception.

    Attributes:
        attempt: The attempt at the batch.
        error: The exception, with a note that says where it was raised.
        component: Id of the component that raised it.
    """

    attempt: TransactionAttempt
    error: Exception
    component: str


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """A batch that was processed successfully.

    Attributes:
        attempt: The attempt at the batch.
        metadata: The complete metadata of the batch.
        handover: The envelopes for a commit phase in the driver.
        partials: The envelopes with partial aggregates, by id of the ``PersistentAggregate``. They
            have those of other batches of the run, too.
        tuples: Number of emitted tuples.
        bytes_by_stream: Bytes of the batch that wait in the driver, by ``component/stream``.
        producers: The producers of all records of the batch.
        kept_bytes_by_stream: Bytes of the handover that the carrier keeps for a commit phase in
            tasks, by ``component/stream``. Empty if the commit phase runs in the driver.
    """

    attempt: TransactionAttempt
    metadata: BatchMetadata
    handover: tuple[bytes, ...]
    partials: Mapping[str, tuple[bytes, ...]]
    tuples: Tuples
    bytes_by_stream: Mapping[str, int]
    producers: frozenset[Producer]
    kept_bytes_by_stream: Mapping[str, int] = field(default_factory=dict)

    def rows_of(self, spouts: Iterable[str]) -> int:
        """Return the number of tuples that the spouts emitted, on all of their streams."""
        return sum(sum(self.tuples.get(spout, {}).values()) for spout in spouts)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a run.

    Attributes:
        processed: The batches before the first failure; all batches if there was none.
        failure: The first failure.
        seen: Which fields the first records have, by spout.
    """

    processed: tuple[BatchOutcome, ...]
    failure: FailedBatch | None
    seen: Mapping[str, SeenFields] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """The outcome of the commit phase of a batch. Nothing is written to a state yet.

    Attributes:
        failure: The failure of the batch. If there is one, ignore the other attributes.
        writes: The writes of the committers, by (component, name of the state). A state without a
            transaction is missing.
        partials: Envelopes with further partial aggregates, by id of the ``PersistentAggregate``.
        tuples: Number of emitted tuples.
    """

    failure: FailedBatch | None
    writes: Mapping[tuple[str, str], Puts]
    partials: Mapping[str, tuple[bytes, ...]]
    tuples: Tuples


def judge(compiled: CompiledTopology, run: Run, records: Iterable[bytes]) -> RunOutcome:
    """Return the outcome of a run, from the records that its job sent to the driver.

    Raises:
        RecomputedError: A task was computed twice; throw the run away.
        RunLostError: Records were lost or doubled; throw the run away.
    """
    read, control, producers = _read(compiled, "processing", run, records)
    failure = _first_failure(run, control.failures)
    by_txid: dict[int, list[tuple[Envelope, int]]] = {each.txid: [] for each in run.attempts}
    for envelope in read.envelopes:
        for txid, nbytes in _shares(compiled, envelope):
            by_txid[txid].append((envelope, nbytes))
    processed = []
    for attempt, metadata in zip(run.attempts, _metadata(compiled, run, control), strict=True):
        if failure is not None and attempt.txid >= failure.attempt.txid:
            break
        content = _content(compiled, control, attempt.txid)
        try:
            check_replay(compiled, attempt, metadata.content, content)
        except NonRepeatableBatch as error:
            failure = FailedBatch(attempt, error, str(error.facts["component"]))
            break
        shares = by_txid[attempt.txid]
        envelopes = [envelope for envelope, _ in shares]
        outcome = BatchOutcome(
            attempt=attempt,
            metadata=replace(metadata, content=content) if content else metadata,
            handover=tuple(e.record for e in envelopes if compiled.edges[e.edge].chain is not None),
            partials=_partials(compiled, envelopes),
            tuples=_tuples(control, attempt.txid),
            bytes_by_stream=_by_stream(compiled, ((e.edge, nbytes) for e, nbytes in shares)),
            producers=producers,
            kept_bytes_by_stream=_by_stream(compiled, _kept(control, attempt.txid)),
        )
        processed.append(outcome)
    return RunOutcome(tuple(processed), failure, control.seen)


def outcome_without_envelopes(run: Run) -> RunOutcome:
    """Return the outcome of a run of which an engine keeps all, and which did not fail."""
    pairs = zip(run.attempts, run.metadata, strict=True)
    return RunOutcome(
        tuple(BatchOutcome(each, planned, (), {}, {}, {}, frozenset()) for each, planned in pairs),
        None,
    )


def judge_commit(
    compiled: CompiledTopology,
    batch: BatchOutcome,
    run: Run,
    records: Iterable[bytes],
    writes: Iterable[WriteSet] = (),
) -> CommitOutcome:
    """Return the outcome of the commit phase of a batch, from the records sent to the driver.

    Args:
        compiled: The topology.
        batch: The batch, as it was judged with its run.
        run: The run of only this attempt: ``run.only(attempt)``.
        records: The records that the commit phase sent to the driver.
        writes: Write sets that did not have to be sent.

    Raises:
        RecomputedError: The handover was computed again after the run was judged; throw the attempt
            away.
        RunLostError: Records were lost or doubled; throw the attempt away.
        ConflictingWritesError: Two tasks wrote the same key; repair the topology.
    """
    read, control, producers = _read(compiled, "commit", run, records)
    one_run_each([*batch.producers, *producers])
    return CommitOutcome(
        failure=_first_failure(run, control.failures),
        writes=_writes(compiled.commit, [*control.writes, *writes]),
        partials=_partials(compiled, read.envelopes),
        tuples=_tuples(control, batch.attempt.txid),
    )


def _read(
    compiled: CompiledTopology, chain: Chain, run: Run, records: Iterable[bytes]
) -> tuple[Records, Control, frozenset[Producer]]:
    read = Records.read(records)
    raise_fault(read.manifests)
    last = (chain, len(compiled.levels_of(chain)) - 1)
    read.check(
        run, last, range(compiled.slots_of(chain)), lambda envelope: _sender(envelope, chain)
    )
    control = Control()
    for manifest in read.manifests:
        if manifest.control is not None:
            control.add(manifest.control)
    producers = frozenset(control.consumed | read.producers())
    one_run_each(producers)
    return read, control, producers


def _sender(envelope: Envelope, chain: Chain) -> int:
    return envelope.producer.slot if envelope.producer.chain == chain else NOWHERE


def _first_failure(run: Run, failures: list[TaskFailure]) -> FailedBatch | None:
    if not failures:
        return None
    first = min(failures, key=lambda f: (f.txid, f.level, f.component, f.task))
    attempt = next(attempt for attempt in run.attempts if attempt.txid == first.txid)
    return FailedBatch(attempt, error_of(first), first.component)


def _metadata(compiled: CompiledTopology, run: Run, control: Control) -> list[BatchMetadata]:
    """Return the metadata of each attempt, with the positions where its emitters ended."""
    cutting = [id for id in compiled.spouts if not compiled.components[id].spout_kind.plans_batches]
    if not cutting:
        return list(run.metadata)
    shares = [dict(each.spouts) for each in run.metadata]
    for spout in cutting:
        for share, cut in zip(shares, _ends(compiled, spout, run, control), strict=True):
            share[spout] = replace(share[spout], cut=cut)
    return [replace(each, spouts=own) for each, own in zip(run.metadata, shares, strict=True)]


def _ends(
    compiled: CompiledTopology, spout: str, run: Run, control: Control
) -> Iterator[dict[str, Json]]:
    """Yield the position of each partition of a spout after each attempt."""
    kind = compiled.components[spout].spout_kind
    cut = dict(run.previous.of(spout).cut or {}) if run.previous is not None else {}
    for attempt, metadata in zip(run.attempts, run.metadata, strict=True):
        share = metadata.of(spout)
        known = share.cut
        if kind.begins_again(share):
            cut = {}
        if known is not None and kind.repeats:
            cut = dict(known)
        else:
            cut = cut | _in_order(control.cuts.get((attempt.txid, spout), {}))
        yield cut


def _content(compiled: CompiledTopology, control: Control, txid: int) -> dict[str, dict[str, Json]]:
    """Return the content of a batch, by component and then by partition or task."""
    found = {spout: control.contents.get((txid, spout)) for spout in compiled.spouts}
    content = {spout: _in_order(parts) for spout, parts in found.items() if parts}
    for bolt in compiled.answering:
        if parts := control.contents.get((txid, bolt)):
            content[bolt] = {ALL_TASKS: AnswersDigest.sum(parts.values())}
    return content


def _in_order(parts: Mapping[int, Json]) -> dict[str, Json]:
    """Return the values of all parts in the order in which they are stored."""
    return {str(part): parts[part] for part in sorted(parts)}


def _partials(
    compiled: CompiledTopology, envelopes: Iterable[Envelope]
) -> dict[str, tuple[bytes, ...]]:
    partials: dict[str, list[bytes]] = {id: [] for id in compiled.aggregations}
    for envelope in envelopes:
        edge = compiled.edges[envelope.edge]
        if edge.chain is None:
            partials[edge.target].append(envelope.record)
    return {id: tuple(records) for id, records in partials.items()}


def _shares(compiled: CompiledTopology, envelope: Envelope) -> Iterator[tuple[int, int]]:
    """Yield (txid, bytes) for each txid of an envelope. They share its bytes by their rows."""
    size = len(envelope.record)
    if compiled.edges[envelope.edge].chain is not None:
        yield envelope.txid, size
        return
    rows: dict[int, int] = {}
    for _, txid, tuples in envelope.segments:
        rows[txid] = rows.get(txid, 0) + tuples
    total = sum(rows.values())
    for txid, mine in rows.items():
        yield txid, size * mine // total


def _kept(control: Control, of_txid: int) -> Iterator[tuple[int, int]]:
    return ((edge, count) for (txid, edge), count in control.kept.items() if txid == of_txid)


def _by_stream(compiled: CompiledTopology, counts: Iterable[tuple[int, int]]) -> dict[str, int]:
    """Sum (edge, bytes) by stream."""
    totals: dict[str, int] = {}
    for index, count in counts:
        edge = compiled.edges[index]
        stream = f"{edge.source}/{edge.stream}"
        totals[stream] = totals.get(stream, 0) + count
    return totals


def _tuples(control: Control, of_txid: int) -> dict[str, dict[str, int]]:
    tuples: dict[str, dict[str, int]] = {}
    for (txid, component, stream), count in control.tuples.items():
        if txid == of_txid:
            tuples.setdefault(component, {})[stream] = count
    return tuples


def _writes(levels: Levels, sets: Iterable[WriteSet]) -> dict[tuple[str, str], Puts]:
    """Return the write sets of all tasks, merged by state.

    Statements are in the order of components, as the levels of the commit phase have them, of tasks
    and of calls.

    Raises:
        ConflictingWritesError: Two tasks wrote the same key; repair the topology.
    """
    merged: dict[tuple[str, str], Mapping[Key, Values | None]] = {}
    expires: dict[tuple[str, str], Any] = {}
    order = {id: at for at, id in enumerate(id for level in levels for id in level)}
    statements: dict[tuple[str, str], list[Statement]] = {}
    for each in sorted(sets, key=lambda w: (w.component, w.state, w.task)):
        name = (each.component, each.state)
        rows = merged.get(name)
        called = [
            one.of(each.component, order[each.component], each.task) for one in each.puts.statements
        ]
        statements.setdefault(name, []).extend(called)
        if (end := each.puts.expires) is not None:
            expires[name] = max(end, expires.get(name, end))
        if rows is None:
            merged[name] = each.puts.rows
            continue
        doubled = rows.keys() & each.puts.rows.keys()
        if doubled:
            key = min(doubled, key=repr)
            raise ConflictingWritesError(
                f"two tasks of bolt {each.component!r} wrote key {key!r} of state "
                f"{each.state!r} in txid {each.txid}; expected each key in one task; "
                "use a fields grouping on the key, or parallelism 1",
                component=each.component,
                key=key,
            )
        merged[name] = merged_rows([rows, each.puts.rows])
    return {
        name: Puts(rows, expires.get(name), tuple(statements[name]))
        for name, rows in merged.items()
    }


def commit_in_driver(
    compiled: CompiledTopology,
    batch: BatchOutcome,
    run: Run,
    states: StateOpener,
    permits: Permits = no_permits,
    times: ComponentTimes | None = None,
    observer: Observer | None = None,
) -> CommitOutcome:
    """Run the commit phase of a batch in this process.

    Args:
        compiled: The topology. Its commit phase must run in the driver.
        batch: The batch, as it was judged with its run.
        run: The run of only this attempt: ``run.only(attempt)``.
        states: Opens the states of the committers.
        permits: Returns what each bolt asks before each call.
        times: Takes how long each component took.
        observer: Is told of the tuples, and of what user code raises.

    Raises:
        NotPermitted: A permit was refused.
    """
    assert compiled.commit_in_driver
    if not compiled.commit:
        return CommitOutcome(None, {}, {}, {})
    records: Iterable[bytes] = batch.handover
    writes: list[WriteSet] = []
    run_level = partial(
        run_stage, states=states, writes=writes, permits=permits, times=times, observer=observer
    )
    for level in range(len(compiled.commit)):
        # No task is computed twice here, so all of them may have the same id.
        stage = RunLevel("commit", run, level).in_slot(compiled, slot=0, task_id=0)
        records = [record for _, record in run_level(stage, records)]
    return judge_commit(compiled, batch, run, records, writes)
