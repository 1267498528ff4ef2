"""Every exception of txtopo.

Three kinds, told apart by their class:

* :class:`TopologyError` and :class:`ConfigError`: what you defined is wrong. Raised while a
  topology is built or started, before anything runs.
* :class:`InfrastructureError`: a store, ZooKeeper or the cluster failed. The runtime backs off and
  retries; you see it only when the first connection cannot be made.
* :class:`PromiseError`: continuing could break exactly-once. The run stops; a person decides.

A message says what is wrong, what was got, what was expected and what to look at. Its facts are
attributes as well; those that a class lists are None where an error has no such fact. All errors
pickle, since they travel from Spark tasks to the driver.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import Enum
from typing import Any

TEXT_CHARACTERS_MAX = 8_000
"""Longer messages and facts are shortened. One that repeats a value may be as long as the value,
and it goes to the driver, the log, listeners and pages, again with each attempt."""


class TxtopoError(Exception):
    """The base of every exception of txtopo; catch it to catch all of them.

    Keyword arguments are facts and become attributes, so no program has to parse the message. An
    error whose message shows a value has at least one: the thing concerned, or what was got. Facts
    are plain values, which pickle; long texts are shortened, like the message.
    ``docs/reference/errors.md`` lists the names of facts.

    Attributes:
        facts: All facts of this error, by name.
        component: Id of the spout or bolt.
        state: Name of the state.
        txid: The batch.
        path: The file, folder, znode or attribute, or the URL, without a password.
        setting: The setting or argument.
        got: What was got, as the message shows it.
        expected: What was expected: a value, a text, or the possible names.
    """

    component: str | None = None
    state: str | None = None
    txid: int | None = None
    path: str | None = None
    setting: str | None = None
    got: object = None
    expected: object = None

    def __init__(self, message: str = "", **facts: object) -> None:
        # Users raise some of these with another exception as their message.
        super().__init__(shortened(message if isinstance(message, str) else text_of(message)))
        self.facts = {
            name: shortened(fact) if isinstance(fact, str) else fact for name, fact in facts.items()
        }
        self.__dict__.update(self.facts)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), str(self), self.facts))


def shortened(text: str, characters_max: int = TEXT_CHARACTERS_MAX, cut: str = "\n[…]\n") -> str:
    """Return a text; *cut* replaces the middle of one with more than *characters_max*."""
    if len(text) <= characters_max:
        return text
    half = characters_max // 2
    return f"{text[:half]}{cut}{text[-half:]}"


def text_of(error: object) -> str:
    """Return the text of an exception or another object, which may be of a class of the user's."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - its __str__ may raise anything
        return "(it cannot be printed)"


def count_text(number: int, what: str) -> str:
    """Return a number of things in words, such as ``"1 row"`` and ``"2 rows"``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def escaped(text: str, kept: str = "") -> str:
    """Return a text in which characters that cannot be printed are escaped, except those *kept*."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else repr(c)[1:-1] for c in text)


def similar(name: object, known: Iterable[str]) -> str:
    """Return the question whether a similar name was meant; empty if no known name is similar."""
    close = get_close_matches(str(name), list(known), 1)
    return f"did you mean {close[0]!r}?" if close else ""


def nearest(name: object, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the most similar known name, or all known names."""
    names = sorted(known)
    return similar(name, names) or f"known are {', '.join(map(repr, names)) or 'none'}"


def _rebuild(kind: type[TxtopoError], message: str, facts: dict[str, object]) -> TxtopoError:
    return kind(message, **facts)


class FailedException(TxtopoError):
    """Raise it in a bolt or emitter to fail the batch (Storm ``FailedException``).

    The batch and every later one in flight are retried after a pause that grows from
    ``Config.backoff_s``, until the batch has failed ``Config.attempts_max`` times. If an outside
    service is unavailable, raise ``StoreUnavailable``, which does not count. In an at-least-once
    topology it fails the tuple, and the spout decides. Any other exception ends the run.
    """


class RecordFailed(TxtopoError):
    """Raise it in ``execute`` of a ``BasicBolt`` to make a dead letter of the input tuple.

    Delivery: what the bolt emitted for the tuple is dropped, the tuple goes to the topology's
    ``dead_letters``, and the batch continues. The function of ``map_async`` may raise it, too.
    Everywhere else it ends the run, like any other exception: in a topology without
    ``dead_letters``, in other bolts and in spouts, and in an at-least-once topology. The same
    holds for subclasses.
    """

    def __init__(self, message: str = "", **facts: object) -> None:
        super().__init__(message, **facts)
        # Only seen where it ends the run.
        self.add_note(
            "RecordFailed produces a dead letter when raised in execute of a BasicBolt or in the "
            "function of map_async, in a topology with dead_letters=open_state(…); anywhere else "
            "it ends the run"
        )


# ---------------------------------------------------------------- what you defined is wrong


class TopologyError(TxtopoError, ValueError):
    """The topology is wrong; fix its definition. Raised while it is built, before anything runs.

    Attributes:
        source: Id of the component that a bolt subscribes to.
        stream: The stream that it subscribes to.
        field: The field that a grouping names.
        table: The table of a state.
        module: The module that an object comes from.
        scheme: The scheme of a state's URL.
    """

    source: str | None = None
    stream: str | None = None
    field: str | None = None
    table: str | None = None
    module: str | None = None
    scheme: str | None = None


class ConfigError(TxtopoError, ValueError):
    """A setting is wrong; fix it. Raised before anything runs.

    Attributes:
        executors: The executors that lack a module, for modules that cannot be imported there.
        package: The package that is not installed.
        extra: The extra of txtopo that installs that package.
    """

    executors: object = None
    package: str | None = None
    extra: str | None = None


class TooFewCores(ConfigError):
    """The session has fewer free cores than slots. It may pass when cores become free.

    At the first start, use fewer slots, or give the session more cores. A restarted run
    (``Restart``) waits for cores: an executor may come back.

    Attributes:
        slots: Number of slots wanted.
        free: Number of free cores.
        cores: Number of cores.
    """

    slots: int | None = None
    free: int | None = None
    cores: int | None = None


class FieldsError(TopologyError):
    """A declaration of fields cannot be parsed, or values do not fit it; fix the declaration.

    Attributes:
        line: Number of the line of a file that cannot be decoded.
    """

    line: int | None = None


class EmitError(TxtopoError, ValueError):
    """A bolt or emitter emitted undeclared tuples, or a record cannot be read.

    It ends the run; fix the bolt, or the program that writes the records.

    Attributes:
        column: The column that cannot be emitted.
        field: The field of the record that cannot be read.
        row: Number of the row.
        line: Number of the line in the file.
    """

    column: str | None = None
    field: str | None = None
    row: int | None = None
    line: int | None = None


class TooManyDeadLetters(TxtopoError):
    """A batch has more dead letters than the limit; nothing of it is committed. It ends the run.

    Look at the record that the message names; fix the source, the declared fields or the bolt,
    or raise the limit (``DeadLetters``) if that many bad records are expected.

    Attributes:
        count: Number of dead letters, as far as they were counted.
        batch_records_max: The limit.
        first: The first of them: its fields by name.
    """

    count: int | None = None
    batch_records_max: int | None = None
    first: dict[str, object] | None = None


# ---------------------------------------------------------------- something failed: retry


class InfrastructureError(TxtopoError):
    """A store, ZooKeeper or the cluster failed. The runtime retries after a pause.

    You see it in the log, and as an exception when the first connection cannot be made: restore
    what the message names.
    """


class CoordinatorUnavailable(InfrastructureError, ConnectionError):
    """ZooKeeper cannot be reached; check the hosts that the message names.

    Attributes:
        hosts: Those hosts.
    """

    hosts: str | None = None


class CommandUnanswered(InfrastructureError):
    """A command to a topology was not answered in time; it may still be carried out.

    Check with ``txtopo show`` whether it was; if not, check whether the leader is stuck.

    Attributes:
        command: Number of the command.
        leader: Host and process of the leader, if there is one.
    """

    command: int | None = None
    leader: object = None


class StoreUnavailable(InfrastructureError, ConnectionError):
    """A state's store, or a service that a bolt calls, cannot be reached; nothing was written.

    A bolt or emitter of a transactional topology may raise it: its batch is retried after a
    growing pause, as often as necessary. Restore the store or the service; the run continues
    automatically.
    """


class StoreContended(StoreUnavailable):
    """Another writer interfered; the same write may be retried at once.

    If it persists, look for another program whose transaction holds a lock on the table.
    """


class UnknownOutcomeError(InfrastructureError):
    """The connection was lost during a write; only the ledger shows whether the write was done.

    You need not do anything: the runtime reads the ledger and continues.
    """


class RecomputedError(InfrastructureError):
    """An attempt got envelopes of two runs of the same Spark task; it is retried.

    You need not do anything, unless it happens often: then find out why Spark loses tasks.
    """


class RunLostError(InfrastructureError):
    """A Spark job failed without naming a batch (a worker died, an executor was lost).

    Its batches are retried. If it happens often, check the executor's log.

    Attributes:
        counted: Whether it counts towards ``Config.attempts_max``.
        cancelled: Whether the framework cancelled the job itself.
    """

    counted: bool | None = None
    cancelled: bool | None = None


class ProcessEnds(InfrastructureError):
    """The process is ending and accepts no new work; nothing failed. The next start continues."""


# ---------------------------------------------------------------- a promise would break: stop


class PromiseError(TxtopoError):
    """Continuing could break exactly-once; the run stops and a person decides."""


class AuthError(PromiseError, PermissionError):
    """A server refuses the credentials; retrying cannot help.

    Fix the credentials or the permissions that the message names, and start again.
    """


class FencedError(PromiseError):
    """Another coordinator with a later epoch has taken over; this one must stop.

    Or another publisher of an outbox has taken over the name of this one.

    Nothing is lost. If no takeover was intended, look for a second process: see *leader*.

    Attributes:
        epoch: The epoch of this coordinator.
        successor: The epoch of the other.
        leader: Host and process of the other, if known.
    """

    epoch: int | None = None
    successor: int | None = None
    leader: object = None


class StaleBatchError(PromiseError):
    """A batch comes before the last one that a state holds.

    Run ``verify``: the state and ZooKeeper do not match, or another program writes to the state.

    Attributes:
        stored_txid: The last txid that the state holds.
    """

    stored_txid: int | None = None


class LedgerGapError(PromiseError):
    """A batch is more than one txid ahead of the last one that a state holds.

    Run ``verify``: the state was restored from a backup, or another program writes to it.

    Attributes:
        stored_txid: The last txid that the state holds.
    """

    stored_txid: int | None = None


class GroupBoundsError(PromiseError):
    """A state holds only part of a group of txids, or its last txid in another group.

    Run ``verify``: the state and ZooKeeper do not match.

    Attributes:
        attempt: The attempt at the group.
        holder: The attempt that the state holds.
    """

    attempt: object = None
    holder: object = None


class TwoHistoriesError(PromiseError):
    """Two coordinators claimed one epoch, so equal numbers do not mean the same attempt.

    ZooKeeper was reverted to an earlier state, or a store was restored from a backup. Run
    ``verify``, and restore copies that match; or set ZooKeeper to what the stores hold with
    ``rebuild``.

    Attributes:
        attempt: The attempt, or the claim, of one of them.
        holder: The attempt, or the ledger, of the other.
    """

    attempt: object = None
    holder: object = None


class StoreBehindCoordinator(PromiseError):
    """A store holds less than ZooKeeper records as committed (restored from a backup?).

    Restore the newer copy of the store, or set ZooKeeper to what the store holds with ``rebuild``.

    Attributes:
        ledger_txid: The last txid that the store holds.
        committed_txid: The last committed txid in ZooKeeper.
    """

    ledger_txid: int | None = None
    committed_txid: int | None = None


class StoreAheadOfCoordinator(PromiseError):
    """A store holds more than ZooKeeper can explain (its data wiped, or another ensemble?).

    Use the ensemble that the state belongs to, or restore its data; otherwise set ZooKeeper to
    what the store holds with ``rebuild``.

    Attributes:
        ledger_txid: The last txid that the store holds.
        committed_txid: The last committed txid in ZooKeeper.
    """

    ledger_txid: int | None = None
    committed_txid: int | None = None


class ForeignEnsembleError(StoreAheadOfCoordinator):
    """A state gets its epochs from a different ZooKeeper than this coordinator.

    Name that ZooKeeper in ``Config.zookeeper``; if it is lost, ``rebuild`` takes the state over.

    Attributes:
        stored_ensemble: The token of that ensemble.
    """

    stored_ensemble: str | None = None


class ForeignStateError(PromiseError):
    """The ledger of a state names another topology, or another state of this one.

    Give each state its own table; ``forget`` releases one that is no longer needed.

    Attributes:
        topology: Id of this topology.
        owner: The owner that the ledger names.
    """

    topology: str | None = None
    owner: object = None


class SchemaDrift(PromiseError):
    """The columns of a table differ from those that the state declares.

    Declare the state as before, or add value columns with ``Config.allow_change``.

    Attributes:
        missing: The declared columns that the table lacks.
    """

    missing: object = None


class StoreDamagedError(PromiseError):
    """The data in a store is damaged or inconsistent; restore a complete copy of one moment.

    Attributes:
        ledger_txid: The last txid in the ledger of the state, if its rows have another.
        expected_txid: The txid that a row should have.
        row_txid: The txid that it has; None if it is missing.
    """

    ledger_txid: int | None = None
    expected_txid: int | None = None
    row_txid: int | None = None


class CorruptNodeError(PromiseError):
    """A node of the transactional state cannot be read; it is never treated as empty.

    Repair it with ``repair_node``, or restore ZooKeeper's data.

    Attributes:
        current: The lowest uncommitted txid, if the node has it.
    """

    current: int | None = None


class SchemaVersionError(PromiseError):
    """A node or ledger was written by a newer txtopo; upgrade this one."""


class BatchMetadataTooLarge(PromiseError):
    """The metadata of a batch does not fit into a znode; make batches smaller."""


class ConflictingWritesError(PromiseError):
    """Two tasks of a committer wrote the same key in one txid; use a fields grouping.

    Attributes:
        key: The key.
    """

    key: object = None


class ValueRefusedError(PromiseError, ValueError):
    """A value cannot be stored exactly; nothing of its batch was written.

    Declare a wider type, or have the bolt write a value that fits.

    Attributes:
        key: The key of its row.
        field: The field or column.
    """

    key: object = None
    field: str | None = None


class StatementFailed(TxtopoError):
    """The database refuses a statement of a committer; nothing of its batch was written.

    Its *txid* is None if the database refused COMMIT, for example because of a deferred
    constraint. Fix the statement or its values, and start again.

    Attributes:
        statement: The statement.
    """

    statement: str | None = None


class PlugInError(PromiseError):
    """A state plug-in violated its interface, so what it wrote is unknown; fix the plug-in."""


class TopologyChanged(PromiseError):
    """The components, states or sources of the topology with this id have changed.

    Start the old program, or allow the change once with ``Config.allow_change``. Commands of
    ``txtopo.operations`` also raise it: pass them the program that ran.

    Attributes:
        changes: What has changed, one text for each change.
    """

    changes: tuple[str, ...] = ()


class OperationUnfinished(PromiseError):
    """An operator's command was interrupted; run the same command again.

    Attributes:
        verb: Name of the command.
        arguments: Its arguments.
    """

    verb: str | None = None
    arguments: dict[str, object] | None = None


class CoordinatorActive(PromiseError):
    """A coordinator leads, so the operator's command must not run; stop the topology first.

    Attributes:
        leader: Host and process of the coordinator.
    """

    leader: object = None


class TopologyKilled(PromiseError):
    """An operator killed the topology, so no process may run it until it is activated again.

    To do that, use ``txtopo activate``.

    Attributes:
        by: Host, process and user of the operator.
        at_s: When, in seconds since 1970, by the clock of the leader that did it.
    """

    by: object = None
    at_s: float | None = None


class SourceDataLost(PromiseError):
    """Data that must be read again is gone or changed; restore it unchanged.

    Attributes:
        topic: Kafka: the topic.
        partition: The partition.
        version: Delta: the version of the table.
    """

    topic: str | None = None
    partition: int | None = None
    version: int | None = None


class NonRepeatableBatch(SourceDataLost):
    """The replay of a transactional spout's batch has different tuples; it is not committed.

    Restore the source as it was, or use an opaque spout and opaque states.

    Attributes:
        part: The partition or task whose tuples differ.
    """

    part: str | int | None = None


class OffsetRegression(SourceDataLost):
    """The source ends before the position up to which it was read, or was replaced (recreated?).

    Restore the old source, or read the new one under another topology id.
    """


class PoisonBatchError(PromiseError):
    """A batch failed ``Config.attempts_max`` times; fix the cause and start again.

    Attributes:
        failures: Number of failed attempts that count towards ``Config.attempts_max``.
        cause: The error of the last one.
    """

    failures: int | None = None
    cause: object = None


class DriverMemoryError(PromiseError):
    """Processed envelopes that wait in the driver exceed ``Config.driver_bytes_max``.

    Make the spout's batches smaller, lower ``max_spout_pending``, or raise the limit.

    Attributes:
        stream: The stream with the most.
    """

    stream: str | None = None


class SlotUnavailable(PromiseError, TimeoutError):
    """A resident slot got no task for ``batch_timeout_s`` while work was waiting for it.

    Restore the cluster's cores and start the topology again, or use fewer slots. A run for which
    ``carrier="auto"`` chose the slots continues with the carrier ``rdd`` instead.

    Attributes:
        slot: The slot.
        slots: Number of slots.
        submission: Number of its last Spark job, which waits.
        cores: Tasks that the session's executors can run at the same time; None if unknown.
        missing_s: How long it has been unable to receive work.
        limit_s: The limit of that time.
    """

    slot: int
    slots: int
    submission: int
    cores: int | None
    missing_s: float
    limit_s: float


class BoltError(TxtopoError):
    """An exception of user code that cannot be pickled, or another report of it, as text.

    Fix what the text describes, and give the exception picklable arguments.
    """


class StateUsageError(TxtopoError, ValueError):
    """A state was used in an unsupported way; fix the bolt that uses it."""


# ---------------------------------------------------------------- warnings


class TopologyWarning(UserWarning):
    """The topology can run, but is probably not as intended; follow the message."""


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
    """It does not exist. Try a few times, since somebody may be making it again."""
    REFUSED = "refused"
    """Credentials or rights are missing. Somebody may be changing them, but continuing would look
    like a run that works, and afterwards a start is all it takes."""
    VALUE = "value"
    """The store takes no such value or record, now or later."""
    DRIFT = "drift"
    """A table or a column is not as it was made."""
    DAMAGED = "damaged"
    """What is stored is not what was written."""
    LASTS = "lasts"
    """A statement, a setting, a version or a disk that will fail each time."""
