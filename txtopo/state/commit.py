"""Claims and commits through a backend: checks its answers, and resolves lost ones by the ledger.

A backend may be somebody else's code, so its answers are checked here. An error names the backend
and its mistake.

If the answer to a commit is lost, the ledger in the store shows whether the commit took effect. If
the ledger cannot be read either, the batch fails like any other whose store is unreachable: it is
replayed after a pause, under a new attempt, and the commit of that attempt reads the ledger in its
own store transaction. It finds txid - 1 and applies its writes, or it finds its txid from the lost
attempt and undoes that first. States that share a transaction are read back one by one, and each
must hold the attempt. So that commit decides the outcome, no effect of the txid counts
twice, and no later txid is committed earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import Protocol

from txtopo.attempt import TransactionAttempt
from txtopo.errors import (
    ForeignStateError,
    InfrastructureError,
    PlugInError,
    StoreUnavailable,
    UnknownOutcomeError,
)
from txtopo.state.backend import Merges, Puts, StateBackend, StateTable, Writes, held_ledger
from txtopo.state.ledger import Claim, Ledger, Standing, check_ensemble, claimed, standing
from txtopo.state.witness import check_witness


class EngineWrites(Protocol):
    """The writes of a txid to a state that an engine performs (:mod:`txtopo.topology.engine`)."""

    def labelled(self) -> AbstractContextManager[None]:
        """Label the jobs that make the writes, so that they can be cancelled."""
        ...

    def apply(self, backend: StateBackend, attempt: TransactionAttempt) -> Ledger:
        """Write rows and ledger in one store transaction, in place of ``backend.commit``."""
        ...


def claim_state(
    backend: StateBackend, claim: Claim, name: str, table: StateTable | None = None
) -> Ledger:
    """Claim a state, and check that its store keeps the whole ledger and the rows that match it.

    Args:
        backend: The state.
        claim: The claim.
        name: Name of the state, for messages.
        table: Its schema; None to claim it without checking its rows, in order to give it up.

    Returns:
        The ledger as the store holds it.

    Raises:
        PromiseError: Raised by :func:`txtopo.state.ledger.claimed`; the message names the state.
        StoreDamagedError: The rows do not match the ledger; a table was restored alone.
        PlugInError: The store holds another ledger than it returned; repair the plug-in.
        StoreUnavailable: Try again later.
    """
    try:
        answer = checked_ledger(backend, backend.claim(claim), epoch=claim.epoch)
        with backend.snapshot() as snapshot:
            kept = snapshot.ledger
            if table is not None:
                check_witness(snapshot, table, name)
        if kept is None or kept != answer or kept.witness != answer.witness:
            # A later claim may have replaced this one meanwhile.
            claimed(kept, claim)
            if kept is not None:
                check_ensemble(kept, claim.ensemble)
            raise _forgets(backend, answer, kept)
    except ForeignStateError as error:
        raise type(error)(f"state {name!r} cannot be claimed: {error}", **error.facts) from error
    return answer


def _forgets(backend: StateBackend, written: Ledger, kept: Ledger | None) -> PlugInError:
    lost = [
        each.name
        for each in fields(Ledger)
        if kept is None or getattr(kept, each.name) != getattr(written, each.name)
    ]
    return PlugInError(
        f"{type(backend).__name__} does not store the whole ledger; wrote {written}; read back "
        f"{kept}; these differ: {', '.join(lost)}; expected every field as it was written: store "
        "all of dataclasses.asdict(ledger), and read it with Ledger.of(fields)",
        fields=tuple(lost),
    )


def checked_ledger(
    backend: StateBackend, answer: object, *, epoch: int, written: TransactionAttempt | None = None
) -> Ledger:
    """Return the answer of ``claim`` or ``commit``, if it is the expected ledger.

    Args:
        backend: The backend that answered.
        answer: Its answer.
        epoch: The epoch that may write now.
        written: The attempt that was committed; None for a claim.

    Raises:
        PlugInError: The answer is something else, so what was written is unknown.
    """
    asked = "claim" if written is None else "commit"
    holds = isinstance(answer, Ledger) and (written is None or written.held_as == answer.writer)
    if isinstance(answer, Ledger) and answer.epoch == epoch and holds:
        return answer
    held = "" if written is None else f" that holds {written}"
    raise PlugInError(
        f"{asked} of {type(backend).__name__} returned {answer!r:.200}; expected the Ledger of "
        f"epoch {epoch}{held}, as it is after the write; fix the plug-in, and check what the "
        "store holds",
        got=f"{answer!r:.200}",
    )


def commit_resolved(
    backend: StateBackend, attempt: TransactionAttempt, writes: Writes | EngineWrites
) -> Ledger:
    """Commit to one state, as :func:`commit_all_resolved` does; return its ledger."""
    return commit_all_resolved(attempt, [(backend, writes)])[0]


def commit_all_resolved(
    attempt: TransactionAttempt, writes: Sequence[tuple[StateBackend, Writes | EngineWrites]]
) -> list[Ledger]:
    """Commit to one state, or to several that share a transaction.

    If the connection is lost during the write, the ledgers decide: all of them must hold the
    attempt.

    Returns:
        The ledgers, which hold *attempt*.

    Raises:
        StoreUnavailable: The write did not take effect; try again.
        FencedError: A later epoch or attempt has taken over; stop.
        PlugInError: The backend returned no ledger; stop.
        UnknownOutcomeError: The ledger could not be read either; try again with a new attempt,
            whose commit reads the ledger.
    """
    backends = [backend for backend, _ in writes]
    for backend in backends:
        backend.point("begin.before")
    try:
        answers = _answers(attempt, writes)
    except UnknownOutcomeError as lost:
        held = [_read_back(backend, attempt, lost) for backend in backends]
    else:
        held = [
            checked_ledger(backend, answer, epoch=attempt.epoch, written=attempt)
            for backend, answer in zip(backends, answers, strict=True)
        ]
    for backend in backends:
        backend.point("write.after")
    return held


def _answers(
    attempt: TransactionAttempt, writes: Sequence[tuple[StateBackend, Writes | EngineWrites]]
) -> Sequence[object]:
    own = [(backend, each) for backend, each in writes if isinstance(each, Puts | Merges)]
    first, own_writes = writes[0]
    if len(own) < len(writes) > 1:
        raise PlugInError(
            f"{type(first).__name__} returns a database, so its states share transactions, but an "
            "engine writes one of them; expected database() to return None if rows may come from "
            "an engine; fix the plug-in",
            store=type(first).__name__,
        )
    if not isinstance(own_writes, Puts | Merges):
        return [own_writes.apply(first, attempt)]
    if len(own) == 1:
        return [first.commit(attempt, own[0][1])]
    answers: object = first.commit_together(attempt, own)
    if not isinstance(answers, Sequence) or len(answers) != len(own):
        raise PlugInError(
            f"commit_together of {type(first).__name__} returned {answers!r:.200}; expected a "
            f"list of {len(own)} ledgers, one for each state; fix the plug-in, and check what the "
            "store holds",
            got=f"{answers!r:.200}",
            expected=len(own),
        )
    return answers


def _read_back(
    backend: StateBackend, attempt: TransactionAttempt, lost: UnknownOutcomeError
) -> Ledger:
    backend.point("read-back.before")
    try:
        ledger = held_ledger(backend)
    except InfrastructureError as error:
        raise UnknownOutcomeError(
            f"the outcome of attempt {attempt} is unknown: {lost}; "
            f"the ledger cannot be read either: {error}",
            attempt=attempt,
        ) from lost
    backend.point("read-back.after")
    if standing(ledger, attempt, backend.claimant) is Standing.HELD:
        assert ledger is not None
        return ledger
    # The lost write may still take effect after this read. That is harmless: the next write waits
    # for its row lock, finds the txid held by this attempt, and undoes it like any other redo.
    raise StoreUnavailable(
        f"the write of attempt {attempt} was lost: {lost}; the state holds {ledger}; try again",
        attempt=attempt,
    ) from lost
