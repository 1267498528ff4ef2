"""Every exception of txtopo.

Three kinds, told apart by their class:

* :class:`TopologyError` and :class:`ConfigError`: what you defined is wrong. Raised while a
  topology is built or started, before anything runs.
* :class:`InfrastructureError`: a store, ZooKeeper or the cluster failed. The runtime backs off and
  tries again; you see it only when the first connection cannot be made.
* :class:`PromiseError`: going on could break exactly-once. The run stops; a person decides.

Messages say what is wrong, what was got, what was expected and what to look at. The facts are
attributes as well. All of them pickle, since they cross from Spark tasks to the driver.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

TEXT_CHARACTERS_MAX = 8_000
"""Enough for whatever a person reads. A text may be as long as a value that a message repeats, and
travels to the driver, the log, listeners and pages, with each attempt again."""


class TxtopoError(Exception):
    """The base of every exception of txtopo.

    Facts are keyword arguments and become attributes, so that tests and pages need no regular
    expression.
    """

    def __init__(self, message: str = "", **facts: object) -> None:
        super().__init__(shortened(message))
        self.facts = facts

    def __getattr__(self, name: str) -> object:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), str(self), self.facts))


def shortened(text: str) -> str:
    """Return a text, without its middle if it is longer than a person reads."""
    if len(text) <= TEXT_CHARACTERS_MAX:
        return text
    half = TEXT_CHARACTERS_MAX // 2
    return f"{text[:half]}\n[…]\n{text[-half:]}"


def _rebuild(kind: type[TxtopoError], message: str, facts: dict[str, object]) -> TxtopoError:
    return kind(message, **facts)


class FailedException(TxtopoError):
    """Raised by your bolts and emitters: this batch failed, replay it (Storm ``FailedException``).

    The batch and every later one that is in flight are tried again, at most
    ``Config.attempts_max`` times. Any other exception ends the run.
    """


# ---------------------------------------------------------------- what you defined is wrong


class TopologyError(TxtopoError, ValueError):
    """The topology is wrong; mend its definition. Raised when it is built, nothing has run."""


class ConfigError(TxtopoError, ValueError):
    """A setting is wrong; mend it. Raised before anything runs."""


class FieldsError(TopologyError):
    """A declaration of fields cannot be read, or values do not fit it."""


class EmitError(TxtopoError, ValueError):
    """A bolt or emitter emitted what it had not declared; mend the bolt. It ends the run."""


# ---------------------------------------------------------------- something failed: retry


class InfrastructureError(TxtopoError):
    """A store, ZooKeeper or the cluster failed. The runtime tries again after a pause."""


class CoordinatorUnavailable(InfrastructureError, ConnectionError):
    """ZooKeeper cannot be reached; check the hosts that the message names."""


class StoreUnavailable(InfrastructureError, ConnectionError):
    """A state's store cannot be reached or refused for now; nothing was written."""


class StoreContended(StoreUnavailable):
    """Another writer was in the way; the same write may be tried again at once."""


class UnknownOutcomeError(InfrastructureError):
    """The connection was lost while a write was under way: read the ledger to know."""


class RecomputedError(InfrastructureError):
    """One attempt saw two runs of the same Spark task; the attempt is thrown away."""


class RunLostError(InfrastructureError):
    """A Spark job failed without naming a batch (a worker died, an executor was lost)."""


# ---------------------------------------------------------------- a promise would break: stop


class PromiseError(TxtopoError):
    """Going on could break exactly-once; the run stops and a person decides."""


class AuthError(PromiseError, PermissionError):
    """ZooKeeper or a store refuses the credentials; retrying cannot help."""


class FencedError(PromiseError):
    """Another coordinator with a later epoch has taken over; this one must stop."""


class StaleBatchError(PromiseError):
    """A batch is behind what a state already holds."""


class LedgerGapError(PromiseError):
    """A batch is further than one txid ahead of what a state holds."""


class StoreBehindCoordinator(PromiseError):
    """A store holds less than ZooKeeper says was committed (restored from a backup?)."""


class StoreAheadOfCoordinator(PromiseError):
    """A store holds more than ZooKeeper can explain (its data wiped, or another ensemble?)."""


class ForeignEnsembleError(StoreAheadOfCoordinator):
    """A state takes its epochs from another ZooKeeper than this coordinator."""


class ForeignStateError(PromiseError):
    """The ledger of a state names another topology, or another state of this one."""


class SchemaDrift(PromiseError):
    """A table has other columns than the state declares."""


class StoreDamagedError(PromiseError):
    """What a store holds is not what was written; bring back a copy that is whole."""


class CorruptNodeError(PromiseError):
    """A node of the transactional state cannot be read; it is never taken as empty."""


class SchemaVersionError(PromiseError):
    """A node or ledger was written by a newer txtopo; upgrade this one."""


class BatchMetadataTooLarge(PromiseError):
    """The metadata of a batch does not fit into a znode; cut smaller batches."""


class ConflictingWritesError(PromiseError):
    """Two tasks of a committer wrote the same key in one txid; use a fields grouping."""


class ValueRefusedError(PromiseError, ValueError):
    """A value cannot be stored exactly; nothing of its batch was written."""


class PlugInError(PromiseError):
    """A state plug-in did not keep its interface, so it is not known what it wrote; mend it."""


class TopologyChanged(PromiseError):
    """The topology of an id has other components or states than before.

    Attributes:
        changes: Each difference, in words.
    """

    changes: tuple[str, ...]


class OperationUnfinished(PromiseError):
    """An operator's verb was begun and has not ended; call the same verb again.

    Attributes:
        verb: Name of the verb.
        arguments: What it was called with.
    """

    verb: str
    arguments: dict[str, object]


class CoordinatorActive(PromiseError):
    """A coordinator leads, so an operator's verb must not run; stop its run first.

    Attributes:
        leader: The candidate that leads, with its host and process id.
    """

    leader: object


class SourceDataLost(PromiseError):
    """Data of a planned batch is gone or changed, so the batch cannot be brought again."""


class NonRepeatableBatch(SourceDataLost):
    """The replay of a transactional spout's batch brought other tuples; it is not committed."""


class OffsetRegression(SourceDataLost):
    """The source ends before the place up to which it was read (deleted and made again?)."""


class PoisonBatchError(PromiseError):
    """A batch failed ``attempts_max`` times; names txid, component and the last cause."""


class DriverMemoryError(PromiseError):
    """Processed envelopes that wait in the driver grew over their cap; names the stream."""


class SlotUnavailable(PromiseError, TimeoutError):
    """A resident slot got no task for ``batch_timeout_s``, and work waits for it.

    Give the cluster back its cores and start the topology again, ask for fewer slots, or let it go
    on with the carrier ``rdd``; see ``Config.lost_slot``.

    Attributes:
        slot: The slot.
        slots: How many there are.
        submission: Number of its last Spark job, which waits.
        cores: Tasks that the session's executors could run at the same time; None if not known.
        missing_s: For how long it could not be given work.
        limit_s: How long it may.
    """

    slot: int
    slots: int
    submission: int
    cores: int | None
    missing_s: float
    limit_s: float


class BoltError(TxtopoError):
    """User code raised an exception that cannot be pickled; carries its text."""


class StateUsageError(TxtopoError, ValueError):
    """A state was used in a way that it does not allow; mend the bolt."""


# ---------------------------------------------------------------- warnings


class TopologyWarning(UserWarning):
    """The topology can run, but is hardly what was meant."""


# ------------------------------------------------- what the error of somebody else's client means


class ErrorMeaning(Enum):
    """What an error of a driver, a client library or the operating system leads to.

    Each table of errors (Kafka, ZooKeeper, RabbitMQ, disks, databases) uses some of these. An error
    that no table knows passes: that loses nothing, since each retry is logged as a WARNING.
    """

    PASSES = "passes"
    """Try again for as long as it takes: a server is away or busy, a leader moves, a disk is
    full, an answer was lost."""
    READ_ONLY = "read-only"
    """Try again, as for ``PASSES``. The server may be a replica for good, so the message asks."""
    CONTENDED = "contended"
    """Try the whole transaction again at once, a few times. After that it passes."""
    DUPLICATE = "duplicate"
    """As ``CONTENDED``, since two writers who make one row at the same time see it. If it stays, it
    ends the run."""
    ANSWER = "answer"
    """An answer about the thing that was asked for. The caller knows what to do."""
    EXPIRED = "expired"
    """The session is over. A leader must contend again."""
    FENCED = "fenced"
    """Another process has taken over. The ledger says which one may write."""
    GONE = "gone"
    """It does not exist. Try a few times, since somebody may be making it anew."""
    REFUSED = "refused"
    """Credentials or rights are missing. Somebody may be changing them, but going on would look
    like a run that works, and afterwards a start is all it takes."""
    VALUE = "value"
    """The store takes no such value or record, now or later."""
    DRIFT = "drift"
    """A table or a column is not as it was made."""
    DAMAGED = "damaged"
    """What is stored is not what was written."""
    LASTS = "lasts"
    """A statement, a setting, a version or a disk that will fail each time."""
