"""Every exception of txtopo.

Three kinds, told apart by their class:

* :class:`TopologyError` and :class:`ConfigError`: what you defined is wrong. Raised while a
  topology is built or started, before anything runs.
* :class:`InfrastructureError`: a store, ZooKeeper or the cluster failed. The runtime backs off and
  tries again; you see it only when the first connection cannot be made.
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

    Keyword arguments are facts and become attributes, so that nobody has to parse the message. An
    error whose message shows a value has at least one: the thing concerned, or what was got. Facts
    are plain values, which pickle; a long text among them is shortened, as the message is.
    ``docs/reference/errors.md`` lists the names that facts have.

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

    The batch and every later one in flight are tried again after a pause that grows from
    ``Config.backoff_s``, until the batch has failed ``Config.attempts_max`` times. If a service
    outside is away, raise ``StoreUnavailable``, which does not count. In an at-least-once topology
    it fails the tuple, and the spout decides. Any exception of another kind ends the run.
    """


class RecordFailed(TxtopoError):
    """Raise it in ``execute`` of a ``BasicBolt`` to make a dead letter of the input tuple.

    Delivery: what the bolt emitted for the tuple is dropped, the tuple goes to the topology's
    ``dead_letters``, and the batch continues. The function of ``map_async`` may raise it, too.
    Everywhere else it ends the run, like any other exception: in a topology without
    ``dead_letters``, in other bolts and in spouts, and in an at-least-once topology. A subclass
    does the same.
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
    """The topology is wrong; repair its definition. Raised while it is built, before anything runs.

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
    """A setting is wrong; repair it. Raised before anything runs.

    Attributes:
        executors: The executors that lack a module, for modules that cannot be imported there.
        package: The package that is not installed.
        extra: The extra of txtopo that brings that package.
    """

    executors: object = None
    package: str | None = None
    extra: str | None = None


class TooFewCores(ConfigError):
    """The session has fewer free cores than slots. It passes when something frees them.

    At the first start ask for fewer slots, or give the session more cores. A run that is started
    again (``Restart``) waits for them: an executor may come back.

    Attributes:
        slots: How many slots are wanted.
        free: How many cores are free.
        cores: How many there are.
    """

    slots: int | None = None
    free: int | None = None
    cores: int | None = None


class FieldsError(TopologyError):
    """A declaration of fields cannot be read, or values do not fit it; repair the declaration.

    Attributes:
        line: Number of the line of a file that cannot be decoded.
    """

    line: int | None = None


class EmitError(TxtopoError, ValueError):
    """A bolt or emitter emitted tuples that it had not declared, or a record cannot be read.

    It ends the run; repair the bolt, or what writes the records.

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

    Look at the record that the message names; repair the source, the declared fields or the bolt,
    or raise the limit (``DeadLetters``) if so many bad records are expected.

    Attributes:
        count: How many there are, as far as they were counted.
        batch_records_max: The limit.
        first: The first of them: its fields by name.
    """

    count: int | None = None
    batch_records_max: int | None = None
    first: dict[str, object] | None = None


# ---------------------------------------------------------------- something failed: retry


class InfrastructureError(TxtopoError):
    """A store, ZooKeeper or the cluster failed. The runtime tries again after a pause.

    You see it in the log, and as an exception when the first connection cannot be made: bring back
    what the message names.
    """


class CoordinatorUnavailable(InfrastructureError, ConnectionError):
    """ZooKeeper cannot be reached; check the hosts that the message names.

    Attributes:
        hosts: Those hosts.
    """

    hosts: str | None = None


class CommandUnanswered(InfrastructureError):
    """A command to a topology was not answered in time; it may still be done.

    Look with ``txtopo show`` whether it was; if not, see whether its leader is stuck.

    Attributes:
        command: Number of the command.
        leader: Host and process of who leads, if anybody does.
    """

    command: int | None = None
    leader: object = None


class StoreUnavailable(InfrastructureError, ConnectionError):
    """A state's store, or a service that a bolt calls, cannot be reached; nothing was written.

    A bolt or emitter of a transactional topology may raise it: its batch is tried again after a
    pause that grows, as often as it takes. Bring the store or the service back; the run continues
    by itself.
    """


class StoreContended(StoreUnavailable):
    """Another writer was in the way; the same write may be tried again at once.

    If it stays, look for a transaction of another program that holds a lock on the table.
    """


class UnknownOutcomeError(InfrastructureError):
    """The connection was lost during a write, which may be there or not; the ledger tells.

    Nothing is to be done: the runtime reads the ledger and continues.
    """


class RecomputedError(InfrastructureError):
    """An attempt got envelopes of two runs of the same Spark task; it is tried again.

    Nothing is to be done, unless it comes often: then look why Spark loses tasks.
    """


class RunLostError(InfrastructureError):
    """A Spark job failed without naming a batch (a worker died, an executor was lost).

    Its batches are tried again. If it comes often, look into the executor's log.

    Attributes:
        counted: Whether it counts towards ``Config.attempts_max``.
        cancelled: Whether the framework cancelled the job itself.
    """

    counted: bool | None = None
    cancelled: bool | None = None


class ProcessEnds(InfrastructureError):
    """The process ends, and lets no new work begin; nothing failed. The next start continues."""


# ---------------------------------------------------------------- a promise would break: stop


class PromiseError(TxtopoError):
    """Continuing could break exactly-once; the run stops and a person decides."""


class AuthError(PromiseError, PermissionError):
    """A server refuses the credentials; trying again cannot help.

    Repair the credentials or the rights that the message names, and start again.
    """


class FencedError(PromiseError):
    """Another coordinator with a later epoch has taken over; this one must stop.

    Or another publisher of an outbox has taken over the name of this one.

    Nothing is lost. If nobody was meant to take over, look at *leader* for a second process.

    Attributes:
        epoch: The epoch of this coordinator.
        successor: The epoch of the other.
        leader: Host and process of the other, where it is known.
    """

    epoch: int | None = None
    successor: int | None = None
    leader: object = None


class StaleBatchError(PromiseError):
    """A batch comes before the last one that a state holds.

    Run ``verify``: the state and ZooKeeper do not belong together, or another program writes.

    Attributes:
        stored_txid: The last txid that the state holds.
    """

    stored_txid: int | None = None


class LedgerGapError(PromiseError):
    """A batch is more than one txid ahead of the last one that a state holds.

    Run ``verify``: the state was brought back from a backup, or another program writes.

    Attributes:
        stored_txid: The last txid that the state holds.
    """

    stored_txid: int | None = None


class GroupBoundsError(PromiseError):
    """A state holds only a part of a group of txids, or its last txid in another group.

    Run ``verify``: the state and ZooKeeper do not belong together.

    Attributes:
        attempt: The attempt at the group.
        holder: The attempt that the state holds.
    """

    attempt: object = None
    holder: object = None


class TwoHistoriesError(PromiseError):
    """Two coordinators claimed one epoch, so that equal numbers do not mean the same attempt.

    ZooKeeper was set back to an earlier state, or a store was restored from a backup. Run
    ``verify``, and bring back what belongs together; or have ``rebuild`` set ZooKeeper to what the
    stores hold.

    Attributes:
        attempt: The attempt, or the claim, of one of them.
        holder: The attempt, or the ledger, of the other.
    """

    attempt: object = None
    holder: object = None


class StoreBehindCoordinator(PromiseError):
    """A store holds less than ZooKeeper says was committed (restored from a backup?).

    Bring back the newer copy of the store, or have ``rebuild`` set ZooKeeper to what it holds.

    Attributes:
        ledger_txid: The last txid that the store holds.
        committed_txid: The last committed txid, as ZooKeeper has it.
    """

    ledger_txid: int | None = None
    committed_txid: int | None = None


class StoreAheadOfCoordinator(PromiseError):
    """A store holds more than ZooKeeper can explain (its data wiped, or another ensemble?).

    Name the ensemble that the state belongs to, or bring back its data; else have ``rebuild`` set
    ZooKeeper to what the store holds.

    Attributes:
        ledger_txid: The last txid that the store holds.
        committed_txid: The last committed txid, as ZooKeeper has it.
    """

    ledger_txid: int | None = None
    committed_txid: int | None = None


class ForeignEnsembleError(StoreAheadOfCoordinator):
    """A state takes its epochs from another ZooKeeper than this coordinator.

    Name that ZooKeeper in ``Config.zookeeper``; if it is lost, ``rebuild`` takes the state over.

    Attributes:
        stored_ensemble: The token of that ensemble.
    """

    stored_ensemble: str | None = None


class ForeignStateError(PromiseError):
    """The ledger of a state names another topology, or another state of this one.

    Give each state a table of its own; ``forget`` releases one that is not needed any more.

    Attributes:
        topology: Id of this topology.
        owner: The owner that the ledger names.
    """

    topology: str | None = None
    owner: object = None


class SchemaDrift(PromiseError):
    """A table has other columns than the state declares.

    Declare the state as it was, or let ``Config.allow_change`` add value columns.

    Attributes:
        missing: The declared columns that the table lacks.
    """

    missing: object = None


class StoreDamagedError(PromiseError):
    """The data in a store is damaged, or of several moments; bring back a whole copy of one moment.

    Attributes:
        ledger_txid: The last txid that the ledger of the state holds, if its rows are of another.
        expected_txid: The txid that a row should have.
        row_txid: The txid that it has; None if it is missing.
    """

    ledger_txid: int | None = None
    expected_txid: int | None = None
    row_txid: int | None = None


class CorruptNodeError(PromiseError):
    """A node of the transactional state cannot be read; it is never taken for an empty one.

    Repair it with ``repair_node``, or bring back ZooKeeper's data.

    Attributes:
        current: The lowest uncommitted txid, where the node has it.
    """

    current: int | None = None


class SchemaVersionError(PromiseError):
    """A node or ledger was written by a newer txtopo; upgrade this one."""


class BatchMetadataTooLarge(PromiseError):
    """The metadata of a batch does not fit into a znode; cut smaller batches."""


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

    Its *txid* is None if the database refused COMMIT, for example because of a constraint that is
    checked there. Repair the statement or its values, and start again.

    Attributes:
        statement: The statement.
    """

    statement: str | None = None


class PlugInError(PromiseError):
    """A state plug-in broke the rules of its interface, so what it wrote is unknown; repair it."""


class TopologyChanged(PromiseError):
    """The topology of an id has other components, states or sources than before.

    Start the old program, or allow the change once with ``Config.allow_change``. A verb of
    ``txtopo.operations`` raises it, too: give it the program that ran.

    Attributes:
        changes: What has changed, one text for each change.
    """

    changes: tuple[str, ...] = ()


class OperationUnfinished(PromiseError):
    """An operator's verb was begun and has not ended; call the same verb again.

    Attributes:
        verb: Name of the verb.
        arguments: The arguments of its call.
    """

    verb: str | None = None
    arguments: dict[str, object] | None = None


class CoordinatorActive(PromiseError):
    """A coordinator leads, so an operator's verb must not run; stop its run first.

    Attributes:
        leader: Host and process of the coordinator.
    """

    leader: object = None


class TopologyKilled(PromiseError):
    """An operator killed the topology, so no process may run it until it is activated again.

    ``txtopo activate`` lets it run.

    Attributes:
        by: Host, process and user of the operator.
        at_s: When, in seconds since 1970, on the clock of the leader that did it.
    """

    by: object = None
    at_s: float | None = None


class SourceDataLost(PromiseError):
    """Data that the source must bring is gone or changed; restore it unchanged.

    Attributes:
        topic: Kafka: the topic.
        partition: The partition.
        version: Delta: the version of the table.
    """

    topic: str | None = None
    partition: int | None = None
    version: int | None = None


class NonRepeatableBatch(SourceDataLost):
    """The replay of a transactional spout's batch brought other tuples; it is not committed.

    Bring the source back as it was, or use an opaque spout and opaque states.

    Attributes:
        part: The partition or task whose tuples differ.
    """

    part: str | int | None = None


class OffsetRegression(SourceDataLost):
    """The source ends before the position up to which it was read, or is another (made again?).

    Bring back the old source, or give the new one a topology id of its own.
    """


class PoisonBatchError(PromiseError):
    """A batch failed ``Config.attempts_max`` times; repair the cause and start again.

    Attributes:
        failures: How many attempts failed, of those that ``Config.attempts_max`` counts.
        cause: The error of the last one.
    """

    failures: int | None = None
    cause: object = None


class DriverMemoryError(PromiseError):
    """Processed envelopes that wait in the driver exceed ``Config.driver_bytes_max``.

    Let the spout cut smaller batches, lower ``max_spout_pending``, or raise the limit.

    Attributes:
        stream: The stream that has most of them.
    """

    stream: str | None = None


class SlotUnavailable(PromiseError, TimeoutError):
    """A resident slot got no task for ``batch_timeout_s``, and work waits for it.

    Give the cluster back its cores and start the topology again, or ask for fewer slots. A run for
    which ``carrier="auto"`` chose the slots continues with the carrier ``rdd`` instead.

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
    """An exception of user code that cannot be pickled, or what else it reported, as text.

    Repair what the text says, and give the exception arguments that pickle.
    """


class StateUsageError(TxtopoError, ValueError):
    """A state was used in a way that it does not allow; repair the bolt that uses it."""


# ---------------------------------------------------------------- warnings


class TopologyWarning(UserWarning):
    """The topology can run, but is probably not what was meant; do as the message says."""


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
