"""Plan: what a verb will do, told before it does it.

A verb that changes something returns a plan and has written nothing yet. ``print(plan)`` shows it,
``plan.apply()`` does it. Then the verb looks again, under the lock: if it would do something else
by now it refuses. Each step may be the last before the process is killed; the same verb with the
same arguments then goes on, and a plan without steps says that nothing is left to do.

A verb that takes more than one step first notes itself in ``/current``. As long as the note stands
no coordinator begins, and no other verb but ``repair_node``; the last step takes it away.

Metadata of batches as operators give it: in the form in which ``show()`` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StateUsageError
from txtopo.metadata import BatchMetadata, Json, json_flaw
from txtopo.operations.session import Access, OperatorSession, VerbClaim, open_site
from txtopo.state.ledger import Ledger
from txtopo.transactional_state.journal import JournalContents, put_batch, unfinished
from txtopo.transactional_state.nodes import (
    CURRENT,
    StoredBatch,
    batch_path,
    metadata_from_json,
    metadata_to_json,
)
from txtopo.transactional_state.store import Delete, Put

if TYPE_CHECKING:
    from txtopo.builders.transactional import Topology
    from txtopo.config import Config


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a verb.

    Attributes:
        text: What it does.
        do: Does it.
    """

    text: str
    do: Callable[[VerbClaim], None]


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done.

    Attributes:
        steps: In this order; none if all is as it should be.
        ledgers: The states that have to be claimed, with what was read of them; None if the steps
            claim what they need themselves.
        takes_over: Claim them also from another owner or ensemble, if that is what was read.
    """

    steps: Sequence[Step] = ()
    ledgers: Mapping[str, Ledger | None] | None = None
    takes_over: bool = False


class Verb(Protocol):
    """One of the operator's verbs, with its arguments."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def arguments(self) -> dict[str, Json]:
        """What it was called with, by which it is known again."""
        ...

    def look(self, site: OperatorSession) -> Work:
        """Find out what is to be done. Writes nothing.

        Raises:
            TxtopoError: The verb cannot help here; the message says what can.
        """
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What a verb will do; nothing of it is done before :meth:`apply`.

    Attributes:
        verb: Name of the verb.
        topology_id: Id of the topology.
        steps: What it will do, in order; empty if nothing is left to do.
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
        """Do what the plan says.

        Raises:
            CoordinatorActive: A coordinator leads; stop it first. Nothing was written.
            StateUsageError: Something has changed since; make a new plan. Nothing was written.
            InfrastructureError: Something cannot be reached; make the same plan again later.
        """
        with open_site(*self._open) as site, site.leading():
            work = self._verb.look(site)
            texts = _texts(work)
            if texts != self.steps:
                raise StateUsageError(
                    f"what {self.verb} would do has changed since it was planned; got "
                    f"{list(texts)}; expected {list(self.steps)}; make a new plan and look at it",
                    steps=texts,
                )
            if not work.steps:
                return
            claim = VerbClaim(site, 0) if work.ledgers is None else _claim(site, work)
            for at, step in enumerate(work.steps):
                site.point(f"operator.before:{at}")
                step.do(claim)
                site.point(f"operator.after:{at}")


def planned(verb: Verb, topology: Topology, config: Config, access: Access) -> Plan:
    """Let a verb look, and return what it will do.

    Raises:
        CoordinatorActive: A coordinator leads; stop it first.
    """
    with open_site(topology, config, access) as site, site.leading():
        texts = _texts(verb.look(site))
    return Plan(verb.name, topology.id, texts, verb, (topology, config, access))


def check_turn(verb: Verb, contents: JournalContents) -> bool:
    """Return whether this very verb was begun already.

    Raises:
        OperationUnfinished: Another one was, or the same with other arguments; finish that first.
    """
    operation = contents.operation
    if operation is None:
        return False
    if operation.get("verb") != verb.name or operation.get("arguments") != verb.arguments:
        raise unfinished(operation)
    return True


def note(verb: Verb, current: int, **facts: Json) -> Put:
    """Return the step that notes a verb as begun."""
    operation: dict[str, Json] = {"verb": verb.name, "arguments": verb.arguments, **facts}
    return Put(CURRENT, {"current": current, "operation": operation})


def _texts(work: Work) -> tuple[str, ...]:
    texts = tuple(step.text for step in work.steps)
    if not texts or work.ledgers is None:
        return texts
    names = ", ".join(repr(name) for name in work.ledgers)
    claims = "claim the next epoch in ZooKeeper" + (f" and in the ledgers of {names}" * bool(names))
    return (claims, *texts)


def _claim(site: OperatorSession, work: Work) -> VerbClaim:
    assert work.ledgers is not None
    claim = site.claim(work.ledgers, takes_over=work.takes_over)
    now = site.ledgers()
    for name, before in work.ledgers.items():
        after = now[name]
        if after is not None and (before or Ledger("", 0)).writer != after.writer:
            raise StateUsageError(
                f"state {name!r} was written to meanwhile; it held {before} and holds {after}; "
                "that writer is fenced now; make a new plan",
                state=name,
            )
    return claim


BEGINNING = BatchMetadata(None, {})
"""Where a source stands before txid 1."""


def checked_metadata(site: OperatorSession, txid: int, value: Json) -> BatchMetadata:
    """Return metadata that says where a batch ended; alone, or with its attempt as a node has it.

    Raises:
        StateUsageError: It does not.
    """
    if isinstance(value, dict) and {*value, "content"} == {"attempt", "metadata", "content"}:
        value = value["metadata"]
    flaw = json_flaw(value)
    keys = set(value) if isinstance(value, dict) else None
    cut = value.get("cut") if isinstance(value, dict) else None
    if flaw is None and keys == {"planned", "cut"} and isinstance(cut, dict | None):
        metadata = metadata_from_json(txid, value)
        if metadata.cut is not None or not site.chained:
            return metadata
        flaw = "its cut is None, so it does not say where the batch ended in each partition"
    raise StateUsageError(
        f"metadata of txid {txid} cannot be used; got {value!r:.200}"
        f"{'' if flaw is None else f' ({flaw})'}; expected {{'planned': …, 'cut': …}} as show() "
        "prints it, with what initialize_transaction returned in 'planned', or what each "
        "partition's emitter returned in 'cut', by the partition's number as a string",
        txid=txid,
    )


def carried(before: BatchMetadata | None, metadata: BatchMetadata) -> BatchMetadata:
    """Return metadata in which partitions that are not named stand where they stood before."""
    if metadata.cut is None or before is None or before.cut is None:
        return metadata
    return BatchMetadata(metadata.planned, {**before.cut, **metadata.cut})


def stored(attempt: TransactionAttempt, metadata: BatchMetadata) -> Put:
    """Return the step that stores a batch."""
    return put_batch(StoredBatch(attempt, metadata_to_json(metadata), metadata.content))


def dropped(txids: Iterable[int]) -> list[Delete]:
    """Return the steps that delete batches."""
    return [Delete(batch_path(txid)) for txid in sorted(txids)]
