"""What became of a commit whose answer was lost: the store is the truth, so it is asked.

If it cannot be asked either, the batch fails like any other that met a store which is away: it is
replayed after a pause, under a new attempt, and the commit of that attempt reads the ledger in its
own store transaction. It finds txid - 1, and applies; or its txid from the lost attempt, and undoes
that first. So the outcome is decided then, nothing of the txid counts twice, and no later txid is
committed before.
"""

from __future__ import annotations

from txtopo.attempt import TransactionAttempt
from txtopo.errors import InfrastructureError, StoreUnavailable, UnknownOutcomeError
from txtopo.state.backend import StateBackend, Writes
from txtopo.state.frames import FrameBackend, FrameWrites
from txtopo.state.ledger import Ledger, Standing, standing
from txtopo.state.plug_in import checked_ledger


def commit_resolved(
    backend: StateBackend, attempt: TransactionAttempt, writes: Writes | FrameWrites
) -> Ledger:
    """Commit, and decide from the ledger when the connection is lost during the write.

    Returns:
        The ledger that holds *attempt*.

    Raises:
        StoreUnavailable: The write has not landed; try again.
        FencedError: A later epoch or attempt has taken over; stop.
        PlugInError: The backend did not say what it wrote; stop.
        UnknownOutcomeError: The ledger could not be read either; try again, with a new attempt:
            the ledger decides when it is there.
    """
    try:
        if isinstance(writes, FrameWrites):
            assert isinstance(backend, FrameBackend), "checked when the topology was built"
            answer = backend.apply_frame(attempt, writes)
        else:
            answer = backend.commit(attempt, writes)
    except UnknownOutcomeError as lost:
        return _read_back(backend, attempt, lost)
    return checked_ledger(backend, answer, epoch=attempt.epoch, written=attempt)


def _read_back(
    backend: StateBackend, attempt: TransactionAttempt, lost: UnknownOutcomeError
) -> Ledger:
    backend.point("P8.before")
    try:
        with backend.snapshot() as snapshot:
            ledger = snapshot.ledger
    except InfrastructureError as error:
        raise UnknownOutcomeError(
            f"the outcome of attempt {attempt} is unknown: {lost}; "
            f"the ledger cannot be read either: {error}",
            attempt=attempt,
        ) from lost
    backend.point("P8.after")
    if standing(ledger, attempt, backend.claimant) is Standing.HELD:
        assert ledger is not None
        return ledger
    # The lost write may still land after this reading. That is harmless: the next write waits for
    # its row lock, finds the txid held by this attempt, and undoes it like any other redo.
    raise StoreUnavailable(
        f"the write of attempt {attempt} was lost on the way: {lost}; the state holds {ledger}; "
        "try again",
        attempt=attempt,
    ) from lost
