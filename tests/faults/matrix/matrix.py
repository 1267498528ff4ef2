"""The 57 rows of the fault matrix: each fault, the step that it hits, and the expected outcome."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A fault.

    Attributes:
        step: The durable step: P0 (claim) to P10 (cleanup), see ARCHITECTURE.md.
        place: What fails.
        fault: How.
        expected: What must come of it.
    """

    step: str
    place: str
    fault: str
    expected: str


ROWS: dict[int, Row] = {
    1: Row(
        "P0",
        "ZooKeeper",
        "down at the start",
        "`CoordinatorUnavailable` names the hosts; nothing is written",
    ),
    2: Row("P0", "ZooKeeper", "refuses the user", "`AuthError` with path and scheme; not retried"),
    3: Row(
        "P0",
        "ZooKeeper",
        "an unreadable node",
        "`CorruptNodeError` with its path; never treated as empty",
    ),
    4: Row("P0", "ZooKeeper", "a node of a newer version", "`SchemaVersionError`: upgrade"),
    5: Row("P0", "coordinators", "two start together", "one leads, the other waits"),
    6: Row(
        "P0",
        "coordinator",
        "a new leader reads from a lagging follower",
        "it synchronizes first",
    ),
    7: Row(
        "P0",
        "store",
        "a ledger is ahead of ZooKeeper",
        "adopted if all hold the stored attempt, otherwise redone",
    ),
    8: Row("P0", "store", "a ledger is behind ZooKeeper", "`StoreBehindCoordinator` names both"),
    9: Row("P0", "store", "the state of another topology", "`ForeignStateError` names both"),
    10: Row("P1", "source", "unreachable", "waited for; no txid is used up"),
    11: Row(
        "P1", "source", "ends before the committed position", "the run stops; never treated as read"
    ),
    12: Row(
        "P1", "source", "a partition is added", "it starts in a new batch; replays do not touch it"
    ),
    13: Row(
        "P2",
        "coordinator",
        "killed before its plan is stored",
        "no trace; the txid is planned again",
    ),
    14: Row(
        "P2", "ZooKeeper", "connection lost, the write landed", "recognised by its writer; success"
    ),
    15: Row("P2", "ZooKeeper", "connection lost, the write did not land", "written again, once"),
    16: Row(
        "P2",
        "ZooKeeper",
        "the session expires",
        "it contends for leadership again and reads everything again",
    ),
    17: Row("P2", "metadata", "too large for a node", "several writes, or `BatchMetadataTooLarge`"),
    18: Row("P3", "executor", "is killed", "two runs of one task fail the run, which is replayed"),
    19: Row(
        "P3",
        "task",
        "a poison row",
        "`PoisonBatchError` after `attempts_max`; earlier batches are committed",
    ),
    20: Row("P3", "task", "runs twice", "nothing is written outside; two cuts fail the run"),
    21: Row(
        "P3", "Python worker", "dies or hangs", "the job is cancelled; the next attempt starts"
    ),
    22: Row("P3", "driver", "killed with batches in flight", "all are replayed, in order"),
    23: Row(
        "P3",
        "spout",
        "a batch fails, later ones are processed",
        "an opaque spout divides them again",
    ),
    24: Row(
        "P3", "source", "a replay has different content", "the run stops; it is never committed"
    ),
    25: Row("P3", "clock", "jumps by an hour", "nothing"),
    26: Row(
        "P4",
        "coordinator",
        "stopped for longer than its session, then woken",
        "deposed; its writes are refused",
    ),
    27: Row("P4", "coordinator", "T+1 is ready before T", "it waits"),
    28: Row("P5", "store", "down", "the txid is retried"),
    29: Row("P5", "store", "the ledger has a newer epoch", "`FencedError`; it stops leading"),
    30: Row("P5", "store", "a zombie holds the lock", "`StoreUnavailable`, then retried"),
    31: Row(
        "P6",
        "driver",
        "killed in the middle of a write",
        "the store rolls back; the txid is replayed",
    ),
    32: Row(
        "P6",
        "store",
        "a deadlock or serialization failure",
        "the whole transaction is retried a few times",
    ),
    33: Row(
        "P6",
        "store",
        "the disk is full",
        "rolled back; a clear error; it continues when there is room",
    ),
    34: Row("P6", "store", "the schema changes", "`SchemaDrift` before the write"),
    35: Row("P6", "task", "one of n dies half-way", "its output does not count"),
    36: Row("P7", "network", "connection lost in COMMIT, which landed", "found in the ledger"),
    37: Row("P7", "network", "connection lost in COMMIT, which did not land", "applied again"),
    38: Row(
        "P7",
        "Delta",
        "the version landed, the answer is lost",
        "recognised by its attempt; success",
    ),
    39: Row("P7", "Delta", "OPTIMIZE in between", "the merge is repeated"),
    40: Row("P7", "Delta", "a zombie raced", "the ledger decides, by the epoch"),
    41: Row("P7", "Delta", "the version is another attempt's", "read back; treated as fenced"),
    42: Row(
        "P7-8",
        "two states",
        "one has the txid, the process died before the other",
        "adopted or undone in the first, applied in the second",
    ),
    43: Row(
        "P7-8",
        "two opaque states",
        "one has an attempt, the replay has other keys",
        "it undoes the whole txid first",
    ),
    44: Row("P8", "store", "a lagging replica", "refused: a primary was expected"),
    45: Row("P9", "ZooKeeper", "down after the store's write", "T+1 waits until ZooKeeper holds T"),
    46: Row("P9", "coordinator", "killed between store and ZooKeeper", "as row 7"),
    47: Row("P9", "ZooKeeper", "another version of the epoch's node", "deposed: it stops"),
    48: Row(
        "P10",
        "coordinator",
        "dies before old metadata is pruned",
        "pruned later; the number of nodes stays small",
    ),
    49: Row("P10", "spout", "an ack is lost", "the chain of metadata includes nothing twice"),
    50: Row(
        "any",
        "ZooKeeper",
        "the leader, a follower or two of three killed or frozen",
        "a pause, then it continues",
    ),
    51: Row(
        "any",
        "ZooKeeper",
        "data wiped, cut off or rolled back",
        "an error that names both; never starts over",
    ),
    52: Row("any", "ZooKeeper", "a new session without notice", "the version check fails"),
    53: Row("any", "network", "a commit arrives after a new leader's", "the ledger refuses it"),
    54: Row("any", "process", "SIGTERM", "it finishes the current commit and ends with status 0"),
    55: Row("any", "topology", "it was changed", "`TopologyChanged`"),
    56: Row("any", "acker", "a tuple or its ack is lost", "it times out and is replayed"),
    57: Row("any", "acker", "restarts", "pending trees time out and are replayed"),
}
