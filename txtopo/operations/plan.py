"""Plan: the steps of a verb, shown to the operator before any of them is done.

A verb that changes something returns a plan and has written nothing yet. ``print(plan)`` shows its
steps and ``plan.apply()`` does them. ``apply`` first makes the plan again, while it leads, and
refuses if the steps have changed. Each time, the program is first compared with the topology that
ran, see :mod:`txtopo.operations.program`. The process may be killed after any step: the same verb
with the same arguments then continues, and its plan has no steps once nothing is left to do.

A verb of more than one step first writes its name and arguments into ``/current``, and removes them
with its last step. In between no coordinator starts, and ``repair_node`` is the only other verb
that runs.

The rest of this file is about the metadata that an operator passes in. It has the form in which
``show()`` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from txtopo.attempt import TransactionAttempt
from txtopo.ensemble.journal import JournalContents, put_batch, unfinished
from txtopo.ensemble.nodes import (
    CURRENT,
    StoredBatch,
    batch_path,
    metadata_from_json,
    metadata_to_json,
)
from txtopo.ensemble.store import Delete, Put
from txtopo.errors import CorruptNodeError, StateUsageError, nearest
from txtopo.fingerprint import Fingerprint
from txtopo.metadata import BatchMetadata, Json, json_flaw
from txtopo.operations.program import check_program
from txtopo.operations.session import Access, OperatorSession, VerbClaim, open_operator_session
from txtopo.state.ledger import Ledger
from txtopo.state.reconciliation import check_claimed_since, check_timeline

if TYPE_CHECKING:
    from txtopo.builders.transactional import Topology
    from txtopo.config import Config


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a verb. None of them is done before :meth:`apply`.

    Attributes:
        verb: Name of the verb.
        topology_id: Id of the topology.
        steps: Description of each step, in order; empty if nothing is left to do.
    """

    verb: str
    topology_id: str
    steps: tuple[str, ...]
    _verb: Verb = field(repr=False, compare=False)
    _open: tuple[Topology, Config, Access] = field(repr=False, compare=False)

    def __str__(self) -> str:
        head = f"{self.verb} of topology {self.topology_id!r}"
        if not self.steps:
            return f"{head}: nothing to do"
        return "\n".join([f"{head}:", *(f"{at}. {text}" for at, text in enumerate(self.steps, 1))])

    def apply(self) -> None:
        """Do the steps.

        Raises:
            CoordinatorActive: A coordinator leads; stop it first. Nothing was written.
            StateUsageError: The steps have changed since; make a new plan. Nothing was written.
            TopologyChanged: Another topology has run under the id meanwhile. Nothing was written.
            InfrastructureError: ZooKeeper or a store cannot be reached; make the plan again later.
                Steps that were done stay done.
        """
        with open_operator_session(*self._open) as session, session.leading():
            program = check_program(self._verb, session)
            work = self._verb.look(session)
            texts = _texts(work)
            if texts != self.steps:
                raise StateUsageError(
                    f"the steps of {self.verb} have changed since the plan was made; got "
                    f"{list(texts)}; expected {list(self.steps)}; make a new plan and look at it",
                    steps=texts,
                )
            if not work.steps:
                return
            if work.ledgers is None:
                claim = VerbClaim(session, 0)
            else:
                claim = _claim(session, work, program, self._verb)
            for at, step in enumerate(work.steps):
                session.point(f"operator.before:{at}")
                step.do(claim)
                session.point(f"operator.after:{at}")


def make_plan(verb: Verb, topology: Topology, config: Config, access: Access) -> Plan:
    """Return the plan of a verb.

    Raises:
        CoordinatorActive: A coordinator leads; stop it first.
        TopologyChanged: It is another topology than the one that ran; nothing was written.
    """
    with open_operator_session(topology, config, access) as session, session.leading():
        check_program(verb, session)
        texts = _texts(verb.look(session))
    return Plan(verb.name, topology.id, texts, verb, (topology, config, access))


class Verb(Protocol):
    """An operator's verb with its arguments."""

    @property
    def name(self) -> str:
        """Name of the function."""
        ...

    @property
    def arguments(self) -> dict[str, Json]:
        """The arguments of the call, which identify it if it is unfinished."""
        ...

    def objection(self, session: OperatorSession) -> str | None:
        """Return why the verb needs the topology that ran; None if it accepts a different one.

        It is called only if the topology is a different one.
        """
        ...

    def look(self, session: OperatorSession) -> VerbSteps:
        """Read everything and return the remaining steps. Writes nothing.

        Raises:
            TxtopoError: The verb cannot help here; the message says what can.
        """
        ...


@dataclass(frozen=True, slots=True)
class VerbSteps:
    """The steps of a verb, and the states that it claims before the first one.

    Attributes:
        steps: The steps, in order; empty if nothing is left to do.
        ledgers: The states to claim, with the ledger that was read for each. With an empty mapping
            only ZooKeeper is claimed; with None nothing is, and the steps protect themselves.
        takes_over: Claim a state even if its ledger names another owner or ensemble.
        lifts: Claim even if ZooKeeper does not have an epoch that a ledger names, because it was
            reverted to an earlier state. All states are claimed then.
        keeps_topology: Whether the claim stores the fingerprint of the program if none is stored.
        makes_topology: Whether the verb makes the topology, so that ``/current`` names the verb
            from its first write on.
    """

    steps: Sequence[VerbStep] = ()
    ledgers: Mapping[str, Ledger | None] | None = None
    takes_over: bool = False
    lifts: bool = False
    keeps_topology: bool = True
    makes_topology: bool = False


@dataclass(frozen=True, slots=True)
class VerbStep:
    """One step of a verb.

    Attributes:
        text: Description for the operator.
        do: Does the step, with the epoch that the verb has claimed.
    """

    text: str
    do: Callable[[VerbClaim], None]


def check_unfinished(verb: Verb, contents: JournalContents) -> bool:
    """Return whether this call of the verb was begun earlier and is unfinished.

    Raises:
        OperationUnfinished: Another call, of any verb, is unfinished; finish that one first.
    """
    operation = contents.operation
    if operation is None:
        return False
    if operation.get("verb") != verb.name or operation.get("arguments") != verb.arguments:
        raise unfinished(operation)
    return True


def check_histories(contents: JournalContents, ledgers: Mapping[str, Ledger | None]) -> None:
    """Check that the states hold what was committed, before a verb begins to change them.

    Raises:
        TwoHistoriesError: A state holds its txid from another history.
        StoreBehindCoordinator: A state that holds an uncommitted txid was restored from a backup.
    """
    stored = {txid: batch.attempt for txid, batch in contents.batches.items()}
    check_claimed_since(ledgers, contents.current, stored)
    committed = contents.batches.get(contents.current - 1)
    if contents.operation is not None or committed is None:
        return
    for name, ledger in ledgers.items():
        if ledger is not None and ledger.txid >= contents.current - 1:
            check_timeline(name, ledger, committed.attempt)


def in_states(names: Iterable[str]) -> str:
    """Return states as text for a step: ``state 'a'``, or ``states 'a', 'b'``."""
    named = [repr(name) for name in names]
    return f"state{'s' * (len(named) > 1)} {', '.join(named)}"


def note_begun(verb: Verb, current: int, **more: Json) -> Put:
    """Return the write that names a verb in ``/current`` as begun."""
    return Put(CURRENT, {"current": current, "operation": operation_of_verb(verb) | more})


def operation_of_verb(verb: Verb) -> dict[str, Json]:
    """Return what names a verb in ``/current``."""
    return {"verb": verb.name, "arguments": verb.arguments}


def _texts(work: VerbSteps) -> tuple[str, ...]:
    texts = tuple(step.text for step in work.steps)
    if not texts or work.ledgers is None:
        return texts
    names = ", ".join(repr(name) for name in work.ledgers)
    claims = "claim the next epoch in ZooKeeper" + (f" and in the ledgers of {names}" * bool(names))
    if work.makes_topology:
        claims += f"; {CURRENT} says from then on that the topology is being created"
    return (claims, *texts)


def _claim(
    session: OperatorSession, work: VerbSteps, program: Fingerprint | None, verb: Verb
) -> VerbClaim:
    assert work.ledgers is not None
    kept = program if work.keeps_topology else None
    if work.makes_topology:
        for name in work.ledgers:  # a table that is in the way is found before anything is claimed
            session.backends[name].create()
    claim = session.claim(
        work.ledgers,
        kept,
        takes_over=work.takes_over,
        lifts=work.lifts,
        operation=operation_of_verb(verb) if work.makes_topology else None,
    )
    now = session.ledgers()
    for name, before in work.ledgers.items():
        after = now[name]
        if after is not None and (before or Ledger("", 0)).writer != after.writer:
            raise StateUsageError(
                f"state {name!r} was written to in the meantime; it held {before} and holds "
                f"{after}; that writer is fenced now; make a new plan",
                state=name,
            )
    return claim


_NODE = {"attempt", "metadata", "content", "verb"}


def checked_metadata(
    session: OperatorSession, txid: int, value: Json, *, given: bool = False
) -> BatchMetadata:
    """Return metadata, if it includes where the batch ended.

    If stored metadata does not name a spout, the spout was not in the topology yet, so it begins at
    its beginning. If an operator does not name a spout, its position is unknown.

    Args:
        session: The session.
        txid: Txid of the batch, for errors.
        value: The metadata, or a whole node with attempt and metadata, as ``show()`` returns it.
        given: Whether an operator supplied it, so that it must name each spout.

    Raises:
        StateUsageError: It cannot be read, or does not include where the batch ended.
    """
    if isinstance(value, dict) and {"attempt", "metadata"} <= {*value} <= _NODE:
        value = value["metadata"]
    flaw = json_flaw(value)
    if flaw is None:
        try:
            metadata = session.metadata_of(txid, value)
        except CorruptNodeError:
            flaw = None
        else:
            flaw = _unusable(session, metadata, value)
            if flaw is None and given:
                flaw = _unnamed(session, value)
            if flaw is None:
                return metadata
    raise StateUsageError(
        f"metadata of txid {txid} cannot be used; got {value!r:.200}"
        f"{'' if flaw is None else f' ({flaw})'}; expected {metadata_form(session)} as show() "
        "prints it, with what initialize_transaction returned in 'planned', or what each "
        "partition's emitter returned in 'cut', by the partition's number as a string",
        txid=txid,
    )


def _unusable(session: OperatorSession, metadata: BatchMetadata, value: Json) -> str | None:
    spouts = [each.id for each in session.graph.spouts]
    if others := [id for id in _named_in(value) if id not in spouts]:
        return f"{others[0]!r} is not a spout of the topology; {nearest(others[0], spouts)}"
    if uncut := [id for id in spouts if id in session.cutting and metadata.of(id).cut is None]:
        return (
            f"the cut of {uncut[0]!r} is None, so it does not say where the batch ended in each "
            "partition"
        )
    return None


def _unnamed(session: OperatorSession, value: Json) -> str | None:
    """Return why metadata that omits a spout is refused: the spout would begin again."""
    named = _named_in(value)
    left_out = [each.id for each in session.graph.spouts if each.id not in named]
    if not left_out:
        return None
    return (
        f"it does not say where {left_out[0]!r} was, which would begin again with its first "
        "record; if it has not begun, write {'absent': None, 'cut': {}}"
    )


def _named_in(value: Json) -> Collection[str]:
    """Return the spouts that metadata names."""
    named = value.get("spouts") if isinstance(value, dict) else None
    return named if isinstance(named, dict) else ()


def metadata_form(session: OperatorSession) -> str:
    """Return the form of the topology's metadata, for messages."""
    stamp = ", 'stamp': {'time': …}" if session.graph.asks else ""
    if session.graph.lookups:
        stamp = ", 'stamp': {'time': …, 'tables': {…}}"
    ids = ", ".join(f"{each.id!r}: {{'planned': …, 'cut': …}}" for each in session.graph.spouts)
    return f"{{'spouts': {{{ids}}}{stamp}}}"


def with_stored_stamp(
    contents: JournalContents, txid: int, metadata: BatchMetadata
) -> BatchMetadata:
    """Return *metadata*, with the stored stamp of the txid if it names none."""
    batch = contents.batches.get(txid)
    if metadata.stamp is not None or batch is None:
        return metadata
    return replace(metadata, stamp=metadata_from_json(txid, batch.metadata).stamp)


def with_unnamed_partitions(before: BatchMetadata | None, metadata: BatchMetadata) -> BatchMetadata:
    """Return *metadata*, with the position from *before* for each partition that it omits."""
    if before is None:
        return metadata
    shares = {
        spout: replace(share, cut={**(before.of(spout).cut or {}), **share.cut})
        if share.cut is not None
        else share
        for spout, share in metadata.spouts.items()
    }
    return replace(metadata, spouts=shares)


def put_metadata(
    attempt: TransactionAttempt, metadata: BatchMetadata, verb: str | None = None
) -> Put:
    """Return the write that stores the metadata of a batch.

    Args:
        attempt: The attempt.
        metadata: Its metadata.
        verb: The verb that writes the txid without a batch; None for a batch.
    """
    return put_batch(StoredBatch(attempt, metadata_to_json(metadata), metadata.content, verb))


def delete_batches(txids: Iterable[int]) -> list[Delete]:
    """Return the writes that delete the metadata of batches."""
    return [Delete(batch_path(txid)) for txid in sorted(txids)]
