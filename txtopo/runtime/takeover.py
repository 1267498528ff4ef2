"""Takeover: the steps of a new leader before its first batch.

Order
-----
1. Read the ledger of every state, and then the epoch in ZooKeeper. An epoch is claimed in ZooKeeper
   before any ledger names it. So if a ledger has an epoch that ZooKeeper does not know, ZooKeeper
   was set back to an earlier state. Then every takeover fails before it claims or writes anything.
   In the opposite order, a successor that claims between the two reads would look the same.
   A ledger that holds an uncommitted txid is read once more, after the metadata of that txid. Its
   writer had claimed the state before it stored the metadata. If the ledger does not show that
   claim, the store was restored from a backup.
2. Read the desired status. If the topology was killed, nothing is claimed or written.
   Claim the next epoch in ZooKeeper, with a random term id. From now on no earlier coordinator can
   write there. If the topology has changed, and the change is allowed, the same write stores the
   change. Read the desired status again: an earlier coordinator may have answered a kill in
   between, but from now on no other process can change it.
3. Write the epoch into the ledger of every state. The txid stays; a state that was added gets its
   first one. Tables whose value columns have changed are altered now, since no earlier coordinator
   can write to them. From now on no earlier coordinator can write to a store, so the txids in the
   ledgers are final.
4. Read ZooKeeper, and compare (:mod:`txtopo.state.reconciliation`). After a crash between the write
   to the stores and the write to ZooKeeper, the stores are one group of txids ahead. The group is
   *adopted* if every ledger has it from the attempts whose metadata is stored. Otherwise the same
   group is undone and done again.

The first takeover uses the states that the start has just opened and created, if this process leads
without having waited as a standby. Any other takeover opens and creates them again: tables may have
changed meanwhile, and a connection may have failed.

An interrupted change is completed
----------------------------------
Everything in step 3 follows from ZooKeeper, and can be repeated. So after a crash between the steps
the next takeover completes the change, even without ``allow_change``: the fingerprint of the new
topology is stored already. A removed state is not opened. A coordinator of the old topology that
has not noticed its end may still write to that state, and to no other. "A state that comes back" in
:mod:`txtopo.state.reconciliation` explains what this means if the state is added again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from txtopo.attempt import txids_text
from txtopo.config import JOBS, ChangeKind
from txtopo.coordinator import Coordinator, CoordinatorSettings
from txtopo.ensemble.commands import KILLED, Desired, desired_of, killed_error
from txtopo.ensemble.nodes import (
    DESIRED,
    EPOCH,
    metadata_from_json,
)
from txtopo.errors import (
    FencedError,
    PromiseError,
    StoreAheadOfCoordinator,
    TopologyChanged,
)
from txtopo.fingerprint import (
    Fingerprint,
    StateName,
    another_topology,
    differences,
    in_words,
)
from txtopo.runtime.run_context import close_backends, open_states, tell_shared
from txtopo.stages.groups import why_one_by_one
from txtopo.state.backend import StateBackend, held_ledger
from txtopo.state.commit import claim_state
from txtopo.state.evolution import REBUILD
from txtopo.state.ledger import SET_BACK, Claim, Ledger, Owner
from txtopo.state.reconciliation import Compared, check_claimed_since, check_known, compared
from txtopo.state.registry import redacted_url
from txtopo.state.together import SharedTransactions, shared_transactions
from txtopo.topology.changes import added_states, refused_change
from txtopo.topology.component import Component, cutting, lacks_end, repeating
from txtopo.topology.graph import fingerprint

if TYPE_CHECKING:
    from txtopo.ensemble.journal import Journal, JournalContents
    from txtopo.ensemble.store import TransactionalState
    from txtopo.metadata import BatchMetadata, Json
    from txtopo.runtime.run_context import RunContext
    from txtopo.runtime.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Takeover:
    """The result of a takeover.

    Attributes:
        coordinator: The coordinator of the term.
        journal: Writes to ZooKeeper under the epoch that was claimed.
        backends: The claimed states, in the order in which they are committed.
        shared: Which of them share transactions.
        adopted: First and last txid of the group that was adopted, if any.
        desired: The status that operators want: running or deactivated.
        spouts_elsewhere: Ids of the spouts whose emitters have a ``commit`` that may write
            elsewhere than to the states.
    """

    coordinator: Coordinator
    journal: Journal
    backends: Mapping[StateName, StateBackend]
    shared: SharedTransactions
    adopted: tuple[int, int] | None
    desired: Desired
    spouts_elsewhere: tuple[str, ...] = ()


def take_over(context: RunContext, journal: Journal, candidate: Json) -> Takeover:
    """Claim everything, compare, and make the coordinator of this term. Blocks.

    Args:
        context: The graph, settings, carrier etc. of the topology.
        journal: A new one for this term. A late write of an earlier term uses that term's journal,
            with its epoch, and is refused.
        candidate: Describes this process to the coordinator that it deposes.

    Raises:
        InfrastructureError: ZooKeeper or a store cannot be reached; take over again.
        FencedError: Another candidate claimed at the same time; contend again.
        TopologyKilled: An operator killed the topology; the run must end.
        PromiseError: A store and ZooKeeper contradict each other; the topology must stop.
    """
    backends = context.take_prepared()
    try:
        created = bool(backends)
        if not created:
            backends = open_states(context.graph, context.scheduler)
        held = _ledgers(journal, backends)
        begun_s = context.scheduler.steady()
        desired, epoch = _claim_epoch(context, journal, candidate, backends, held)
        if (written_s := context.transactional_state.written_s(EPOCH)) is not None:
            context.plan_clock.compare(written_s, begun_s)
        try:
            ledgers = _claim(context, epoch, journal, backends, created=created)
            claimed = {name: ledgers[".".join(name)] for name in backends}
            shared = shared_transactions(backends, claimed)
            tell_shared(context.graph.id, shared)
            elsewhere = spouts_elsewhere(context)
            coordinator, adopted = _coordinator(context, journal, ledgers, backends, elsewhere)
        except PromiseError:
            # A successor may have written meanwhile. Then this raises FencedError instead.
            journal.confirm()
            raise
    except BaseException:
        close_backends(context.graph.id, backends)
        raise
    return Takeover(coordinator, journal, backends, shared, adopted, desired, elsewhere)


def spouts_elsewhere(context: RunContext) -> tuple[str, ...]:
    """Return the spouts whose emitters have a ``commit`` that may write elsewhere. Blocks."""
    return tuple(each.spout_id for each in context.planner.parts if each.may_write_elsewhere)


def _claim_epoch(
    context: RunContext,
    journal: Journal,
    candidate: Json,
    backends: Mapping[StateName, StateBackend],
    held: Mapping[str, Ledger | None],
) -> tuple[Desired, int]:
    return claim_epoch(
        context.graph.id,
        context.transactional_state,
        journal,
        candidate,
        context.scheduler,
        fingerprint(context.graph),
        change=partial(_added, context, backends),
        check=partial(check_known, held, context.graph.id),
    )


def claim_epoch(
    topology_id: str,
    state: TransactionalState,
    journal: Journal,
    candidate: Json,
    scheduler: Scheduler,
    now: Fingerprint,
    *,
    change: Callable[[Fingerprint], Sequence[StateName]] | None = None,
    check: Callable[[str, Mapping[int, str]], None] | None = None,
) -> tuple[Desired, int]:
    """Claim the next epoch, unless the topology was killed. Blocks.

    Args:
        topology_id: Id of the topology.
        state: Its transactional state.
        journal: A new one for this term.
        candidate: Describes this process to the coordinator that it deposes.
        scheduler: Random numbers and durable steps.
        now: Fingerprint of the topology.
        change: See ``Journal.claim_epoch``.
        check: See ``Journal.claim_epoch``.

    Returns:
        The status that operators want for the topology, and the epoch.

    Raises:
        InfrastructureError: ZooKeeper cannot be reached; claim again.
        FencedError: Another candidate claimed at the same time; contend again.
        TopologyKilled: An operator killed the topology; the run must end.
        TopologyChanged: It is not the topology that ran under this id.
    """
    state.synchronize()
    if (desired := desired_of(state.get(DESIRED))).status == KILLED:
        raise killed_error(topology_id, desired)
    scheduler.point("claim.before-epoch")
    token = f"{scheduler.seed():016x}"
    epoch = journal.claim_epoch(candidate, token=token, fingerprint=now, change=change, check=check)
    scheduler.point("claim.after-epoch")
    desired = desired_of(state.get(DESIRED))
    if desired.status == KILLED:
        journal.confirm()  # raises if a successor leads, which may have activated it again
        raise killed_error(topology_id, desired)
    return desired, epoch


def _ledgers(
    journal: Journal, backends: Mapping[StateName, StateBackend]
) -> dict[str, Ledger | None]:
    """Read the ledgers before the claim, and check them against what is planned.

    Raises:
        StoreBehindCoordinator: A store was restored from a backup.
    """

    def read() -> dict[str, Ledger | None]:
        return {".".join(name): held_ledger(backend) for name, backend in backends.items()}

    held = read()
    last = max((each.txid for each in held.values() if each is not None), default=0)
    current, planned = journal.planned(last)
    if planned:
        # Its planner had claimed the states first, so ledgers that are read now must show that.
        held = read()
        check_claimed_since(held, current, planned)
    return held


def _added(
    context: RunContext, backends: Mapping[StateName, StateBackend], known: Fingerprint
) -> tuple[StateName, ...]:
    """Return the states that are new; see ``Journal.claim_epoch``.

    Raises:
        TopologyChanged: A change is not allowed; or it needs new columns in a store that cannot
            alter its tables; or the remaining states would continue with wrong values.
    """
    now = fingerprint(context.graph)
    found = differences(known, now)
    if not context.config.may_change(*(each.change for each in found)):
        raise another_topology(found)
    changes = tuple(each.text for each in found)
    added = added_states(now, known)
    if (why := refused_change(context.graph, known, added)) is not None:
        raise TopologyChanged(f"{why}; nothing was written", changes=changes)
    for name, backend in backends.items():
        if name in added or backend.evolves or now.states[name] in known.states.values():
            continue
        raise TopologyChanged(
            f"the columns of {in_words(name)} have changed, but {type(backend).__name__} cannot "
            f"alter a table; {'; '.join(changes)}; nothing was written; declare them as before; "
            f"{f'or make it do so: {backend.more_with}; ' if backend.more_with else ''}or "
            f"{REBUILD}",
            changes=changes,
        )
    return added


def _claim(
    context: RunContext,
    epoch: int,
    journal: Journal,
    backends: Mapping[StateName, StateBackend],
    *,
    created: bool,
) -> dict[str, Ledger]:
    ledgers = {}
    for (component, state), backend in backends.items():
        name = f"{component}.{state}"
        if not created:
            backend.create()
        added = (component, state) in journal.added
        claim = Claim(
            Owner(context.graph.id, component, state),
            epoch,
            journal.ensemble,
            begins=journal.current - 1 if added else 0,
            changes_table=context.config.may_change(ChangeKind.COLUMNS) or journal.is_known,
            term=journal.term,
        )
        if context.config.may_change(ChangeKind.STATES):
            claim = replace(claim, replaces=_renamed(backend, claim, backends))
        try:
            table = context.graph.components[component].states[state].layout()
            ledgers[name] = claim_state(backend, claim, name, table)
        except FencedError as error:
            raise StoreAheadOfCoordinator(
                f"state {name!r} was claimed by epoch {error.facts.get('successor')}, but the "
                f"newest epoch that ZooKeeper knows is {epoch}; was ZooKeeper's data wiped, or is "
                "this another ensemble? use the right one, or call txtopo.operations.rebuild, "
                "which adjusts ZooKeeper to the states",
                state=name,
            ) from error
        context.scheduler.point(f"claim.claimed:{name}")
    return ledgers


def _renamed(
    backend: StateBackend, claim: Claim, backends: Mapping[StateName, StateBackend]
) -> Ledger | None:
    """Return the ledger of a state if its component or its name is no longer in this topology."""
    held = held_ledger(backend)
    if held is None or held.topology != claim.owner.topology:
        return None
    if held.txid and held.ensemble != claim.ensemble:
        return None
    # A ledger with the epoch of this takeover is the same table under another URL. One with an
    # earlier epoch is another table, whose component and name were swapped.
    claimed_now = (held.ensemble, held.epoch, held.term) == (
        claim.ensemble,
        claim.epoch,
        claim.term,
    )
    return None if claimed_now and (held.component, held.state) in backends else held


def _coordinator(
    context: RunContext,
    journal: Journal,
    ledgers: Mapping[str, Ledger],
    backends: Mapping[StateName, StateBackend],
    elsewhere: Sequence[str],
) -> tuple[Coordinator, tuple[int, int] | None]:
    contents = journal.load()
    current = contents.current
    stored = {txid: batch.attempt for txid, batch in contents.batches.items()}
    added = [".".join(name) for name in backends if name in journal.added]
    found = compared(ledgers, current, stored, _urls(context), added)
    _check_ends(context, contents, found)
    adopted = None
    if found.adopted is not None:
        adopted = (current, found.adopted)
        journal.advance(found.adopted + 1)
        current = found.adopted + 1
        context.scheduler.point("claim.adopted")
    one_by_one = why_one_by_one(context.graph, context.compiled, backends, elsewhere)
    if one_by_one is not None and found.pinned is not None and found.pinned > current:
        raise _no_groups(current, found.pinned, one_by_one)
    metadata = {
        txid: replace(
            metadata_from_json(txid, batch.metadata),
            content=batch.content if context.config.check_replays else None,
        ).read_for(context.compiled.spouts)
        for txid, batch in contents.batches.items()
        if txid >= current - 1
    }
    coordinator = Coordinator(
        settings_of(context, groups=one_by_one is None),
        epoch=journal.epoch,
        term=journal.term,
        current=current,
        stored=context.planner.begin(metadata, current),
        pinned=found.pinned,
    )
    return coordinator, adopted


def _check_ends(context: RunContext, contents: JournalContents, found: Compared) -> None:
    current, last = contents.current, found.adopted or found.pinned or 0
    metadata = {
        txid: metadata_from_json(txid, contents.batches[txid].metadata)
        for txid in range(current, last + 1)
    }
    check_ends(context.graph.spouts, metadata, current, found)


def check_ends(
    spouts: Sequence[Component],
    stored: Mapping[int, BatchMetadata],
    current: int,
    found: Compared,
) -> None:
    """Check that ZooKeeper has the end of each batch that states hold; see ``lacks_end``.

    Args:
        spouts: The spouts of the topology.
        stored: The metadata of each txid that states hold, from *current* on.
        current: The lowest txid that ZooKeeper does not know as committed.
        found: What ``compared`` returned.

    Raises:
        StoreAheadOfCoordinator: The end of a batch is missing.
    """
    for txid, metadata in stored.items():
        if lacks_end(spouts, metadata, adopted=found.adopted is not None):
            raise StoreAheadOfCoordinator(
                f"states hold txid {txid}, but its metadata in ZooKeeper does not contain where "
                f"it ended; expected its end, which is stored before a commit; {SET_BACK}; if the "
                "end is not known, txtopo.operations.rewind takes opaque states back to txid "
                f"{current - 1}",
                committed_txid=current - 1,
                ledger_txid=max(stored),
            )


def _urls(context: RunContext) -> dict[str, str]:
    return {
        f"{component.id}.{name}": redacted_url(state.url)
        for component in context.graph.components.values()
        for name, state in component.states.items()
    }


def _no_groups(first: int, last: int, why: str) -> StoreAheadOfCoordinator:
    return StoreAheadOfCoordinator(
        f"a state holds {txids_text(first, last)} in one write, which must be done again in one "
        f"write, but the topology commits its batches one by one: {why}; start the topology that "
        "wrote them until it has committed them, exactly as it was then, for instance with "
        "writes_nowhere_else = True where it had that; or undo them with "
        f"txtopo.operations.rewind to txid {first - 1}",
        committed_txid=first - 1,
        ledger_txid=last,
    )


def settings_of(context: RunContext, *, groups: bool = True) -> CoordinatorSettings:
    """Return the coordinator's settings, derived from the topology and its config."""
    config, spouts = context.config, context.graph.spouts
    repeatable = repeating(spouts)
    return CoordinatorSettings(
        window_txids=config.max_spout_pending,
        run_txids_max=context.graph.run_txids_max(config.run_txids),
        jobs_max=JOBS,
        attempts_max=config.attempts_max,
        repeatable=len(repeatable) == len(spouts),
        cutting_spouts=cutting(spouts),
        group_txids_max=config.group_txids_max if groups else 1,
        repeatable_spouts=frozenset(repeatable),
    )
