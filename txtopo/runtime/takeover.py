"""Takeover: what a new leader does before its first batch.

Order
-----
1. Claim the next epoch in ZooKeeper; from here on no earlier coordinator writes there.
2. Write the epoch into the ledger of every state, txid unchanged; from here on no earlier
   coordinator writes to a store. Only then is it known where the stores stand.
3. Read what ZooKeeper holds, and compare. A txid that the stores hold already, though ZooKeeper
   does not know it (a crash between the two writes), is *adopted* if every ledger has it from the
   attempt whose metadata is stored; otherwise it is undone and done again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from txtopo.coordinator import Coordinator, CoordinatorSettings
from txtopo.errors import FencedError, PromiseError, StoreAheadOfCoordinator
from txtopo.runtime.journaling import from_json
from txtopo.runtime.run_context import close_backends
from txtopo.state.backend import StateBackend
from txtopo.state.commit import claim_state
from txtopo.state.ledger import Claim, Ledger, Owner, adopts
from txtopo.topology.component import Role
from txtopo.topology.graph import fingerprint

if TYPE_CHECKING:
    from txtopo.metadata import Json
    from txtopo.runtime.run_context import CommitContext, RunContext
    from txtopo.transactional_state.journal import Journal

StateName = tuple[str, str]
"""A state of a topology: (component id, name in ``with_state``)."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """What a new leader begins with.

    Attributes:
        coordinator: The coordinator of the term.
        journal: Writes the term's steps, with the check of the epoch that it has claimed.
        backends: The claimed states, in the order of their commits.
        adopted: The txid that was adopted, if any.
    """

    coordinator: Coordinator
    journal: Journal
    backends: Mapping[StateName, StateBackend]
    adopted: int | None


def take_over(parts: RunContext, journal: Journal, candidate: Json) -> Takeover:
    """Claim everything, compare, and make the coordinator of this term. Blocks.

    Args:
        parts: What the run is made of.
        journal: One of the term's own: a write of an earlier term that is still on its way must
            find the epoch that it belongs to, and be refused.
        candidate: Who claims, shown to whoever is deposed by it.

    Raises:
        InfrastructureError: Something cannot be reached; all of it may be done again.
        FencedError: Somebody else claimed at the same time; contend again.
        PromiseError: A store and ZooKeeper do not fit together; the run must stop.
    """
    point = parts.scheduler.point
    point("claim.before-epoch")
    epoch = journal.claim_epoch(
        candidate,
        token=f"{parts.scheduler.seed():016x}",
        fingerprint=fingerprint(parts.graph),
        allow_change=parts.config.allow_change,
    )
    point("claim.after-epoch")
    backends = open_states(parts)
    try:
        try:
            ledgers = _claim(parts, epoch, journal.ensemble, backends)
            coordinator, adopted = _coordinator(parts, journal, epoch, ledgers)
        except PromiseError:
            # What does not fit together may be what a successor has written meanwhile.
            journal.confirm()
            raise
    except BaseException:
        close_backends(backends)
        raise
    return Takeover(coordinator, journal, backends, adopted)


def _claim(
    parts: RunContext, epoch: int, ensemble: str, backends: Mapping[StateName, StateBackend]
) -> dict[str, Ledger]:
    ledgers = {}
    for (component, state), backend in backends.items():
        name = f"{component}.{state}"
        backend.create()
        claim = Claim(Owner(parts.graph.id, component, state), epoch, ensemble)
        if parts.config.allow_change:
            claim = replace(claim, replaces=_renamed(backend, claim, backends))
        try:
            ledgers[name] = claim_state(backend, claim, name)
        except FencedError as error:
            raise StoreAheadOfCoordinator(
                f"state {name!r} was claimed by epoch {error.facts.get('successor')}, but the "
                f"newest epoch that ZooKeeper knows is {epoch}; was ZooKeeper's data wiped, or is "
                "this another ensemble? point to the right one, or call txtopo.operations.rebuild, "
                "which fits ZooKeeper to the states",
                state=name,
            ) from error
        parts.scheduler.point(f"claim.claimed:{name}")
    return ledgers


def _renamed(
    backend: StateBackend, claim: Claim, backends: Mapping[StateName, StateBackend]
) -> Ledger | None:
    """Return the ledger of a state whose component or name this topology has no more."""
    with backend.snapshot() as snapshot:
        held = snapshot.ledger
    if held is None or held.topology != claim.owner.topology:
        return None
    if held.txid and held.ensemble != claim.ensemble:
        return None
    # One that this very takeover has claimed is the same table under another URL. One that has an
    # earlier epoch is another table, whose names go round.
    claimed_now = (held.ensemble, held.epoch) == (claim.ensemble, claim.epoch)
    return None if claimed_now and (held.component, held.state) in backends else held


def _coordinator(
    parts: RunContext, journal: Journal, epoch: int, ledgers: Mapping[str, Ledger]
) -> tuple[Coordinator, int | None]:
    contents = journal.load()
    current, adopted = contents.current, None
    stored = contents.batches.get(current)
    if adopts(ledgers, current=current, stored=stored.attempt if stored else None):
        adopted = current
        journal.advance(current + 1, drop_before=current)
        current += 1
        parts.scheduler.point("claim.adopted")
    # What was brought before may be another batch now, if that is meant.
    compares = parts.config.check_replays and not parts.config.allow_change
    metadata = {
        txid: replace(from_json(txid, batch.metadata), content=batch.content if compares else None)
        for txid, batch in contents.batches.items()
        if txid >= current - 1
    }
    settings = settings_of(parts)
    return Coordinator(settings, epoch=epoch, current=current, stored=metadata), adopted


def open_states(parts: CommitContext) -> dict[StateName, StateBackend]:
    """Open a backend for each state of each committer, in topological order."""
    backends = {}
    for component in parts.graph.components.values():
        for name, state in component.states.items():
            backend = state.open()
            backend.point = partial(_mark, parts, f"{component.id}.{name}")
            backends[component.id, name] = backend
    return backends


def _mark(parts: CommitContext, state: str, step: str) -> None:
    parts.scheduler.point(f"{step}:{state}")


def settings_of(parts: RunContext) -> CoordinatorSettings:
    """Return what the coordinator has to know of the topology and its settings."""
    config, role = parts.config, parts.graph.spout.role
    return CoordinatorSettings(
        window_txids=config.window_txids,
        # A plan of Spark's brings the rows of one batch.
        run_txids_max=1 if role.frame else config.run_txids_max,
        jobs_max=config.jobs_max,
        attempts_max=config.attempts_max,
        keep_processed=config.keep_processed,
        repeatable=role is not Role.OPAQUE_SPOUT,
        chained=not role.plans_batches,
    )
