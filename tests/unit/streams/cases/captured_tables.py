"""What other engines make of the log of a table, as data.

An event is an operation, a key, a value and, where the source has one, a position. Rows that are
emitted are written ``+key=value``, and those that are taken back ``-key=value``.

Sources, as of 2026, and what they do in another way:

* Flink: ``ChangelogNormalizeTestPrograms``. The image of a row before its update is an event of its
  own there (``-U``), which here is no event, or one that is ignored.
* Kafka Streams: ``KTableSourceTest``. There a timestamp is no position, so events count as they
  arrive. A row that comes again as it is, with an older timestamp, is emitted again there. A record
  without a key is skipped there; here it is refused.
* Hudi: ``TestPostgresDebeziumAvroPayload`` and ``TestMySqlDebeziumAvroPayload``. There a delete
  leaves nothing behind once it was merged, so a late event brings the row back; here it does not.
  Of events with one position the last counts there, here the first. A position of MySQL is one text
  there, ``file.place``, whose parts are compared as numbers; here these are two columns.
* Databricks: the example of ``APPLY CHANGES``, SCD type 1, with ``APPLY AS TRUNCATE``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CapturedCase:
    """A log, and what becomes of it.

    Attributes:
        source: The test that it is taken from.
        txids: The events of each txid.
        rows: The table at the end.
        emitted: What each txid emits; None if the source does not say.
        position: The columns of their positions; empty for the order of arrival.
        refused: How many events cannot be used.
    """

    source: str
    txids: Sequence[Sequence[tuple[Any, ...]]]
    rows: Mapping[str, Any]
    emitted: Sequence[Sequence[str]] | None = None
    position: tuple[str, ...] = ()
    refused: int = 0


def one_by_one(*events: tuple[Any, ...]) -> list[list[tuple[Any, ...]]]:
    return [[event] for event in events]


FLINK, KAFKA, HUDI = (
    "Flink, ChangelogNormalizeTestPrograms",
    "Kafka Streams, KTableSourceTest",
    "Hudi, TestPostgresDebeziumAvroPayload",
)
MYSQL = "Hudi, TestMySqlDebeziumAvroPayload"

FLINK_LOG = [
    ("c", "one", 1),
    ("c", "two", 2),
    ("u", "one", 11),
    ("c", "three", 3),
    ("d", "two", None),
    ("u", "three", 33),
    ("c", "four", 4),
    ("c", "five", 5),
    ("u", "four", 44),
    ("c", "six", 6),
    ("d", "six", None),
]
FLINK_ROWS = {"one": 11, "three": 33, "four": 44, "five": 5}

LSN, BINLOG = ("at",), ("line", "at")

SCD = [
    ("insert", "124", 1, 1),
    ("insert", "123", 2, 1),
    ("insert", "125", 3, 2),
    ("insert", "126", 4, 2),
    ("delete", "123", None, 6),
    ("update", "125", 6, 6),
    ("update", "125", 5, 5),
    ("update", "123", 7, 5),
]

CASES = [
    CapturedCase(
        f"{FLINK}: source with all kinds of changes",
        one_by_one(*FLINK_LOG),
        FLINK_ROWS,
        [
            ["+one=1"],
            ["+two=2"],
            ["-one=1", "+one=11"],
            ["+three=3"],
            ["-two=2"],
            ["-three=3", "+three=33"],
            ["+four=4"],
            ["+five=5"],
            ["-four=4", "+four=44"],
            ["+six=6"],
            ["-six=6"],
        ],
    ),
    CapturedCase(
        f"{FLINK}: batches of two",
        [FLINK_LOG[at : at + 2] for at in range(0, len(FLINK_LOG), 2)],
        FLINK_ROWS,
    ),
    CapturedCase(
        f"{FLINK}: upserts, which do not say whether the row is new",
        one_by_one(
            ("u", "one", 1),
            ("u", "two", 2),
            ("u", "one", 11),
            ("u", "three", 3),
            ("d", "two", None),
            ("u", "three", 33),
        ),
        {"one": 11, "three": 33},
        [
            ["+one=1"],
            ["+two=2"],
            ["-one=1", "+one=11"],
            ["+three=3"],
            ["-two=2"],
            ["-three=3", "+three=33"],
        ],
    ),
    CapturedCase(
        f"{FLINK}: events that are repeated after a failure",
        one_by_one(*FLINK_LOG[:1], *FLINK_LOG[:1], ("d", "one", None), ("d", "one", None)),
        {},
        [["+one=1"], [], ["-one=1"], []],
    ),
    CapturedCase(
        f"{KAFKA}: testKTable",
        one_by_one(
            ("u", "A", 1),
            ("u", "B", 2),
            ("u", "C", 3),
            ("u", "D", 4),
            ("d", "A", None),
            ("d", "B", None),
        ),
        {"C": 3, "D": 4},
        [["+A=1"], ["+B=2"], ["+C=3"], ["+D=4"], ["-A=1"], ["-B=2"]],
    ),
    CapturedCase(
        f"{KAFKA}: testKTableSourceEmitOnChange",
        one_by_one(("u", "A", 1), ("u", "B", 2), ("u", "A", 1), ("u", "B", 3), ("u", "A", 1)),
        {"A": 1, "B": 3},
        [["+A=1"], ["+B=2"], [], ["-B=2", "+B=3"], []],
    ),
    CapturedCase(
        f"{KAFKA}: testSendingOldValue",
        [
            [("u", "A", 1), ("u", "B", 1), ("u", "C", 1)],
            [("u", "A", 2), ("u", "B", 2)],
            [("u", "A", 3)],
            [("d", "A", None), ("d", "B", None)],
        ],
        {"C": 1},
        [
            ["+A=1", "+B=1", "+C=1"],
            ["-A=1", "+A=2", "-B=1", "+B=2"],
            ["-A=2", "+A=3"],
            ["-A=3", "-B=2"],
        ],
    ),
    CapturedCase(
        f"{KAFKA}: kTableShouldLogAndMeterOnSkippedRecords",
        one_by_one(("u", None, 1)),
        {},
        refused=1,
    ),
    CapturedCase(
        f"{HUDI}: testPreCombine, an update before an insert",
        [[("c", "0", 120, 120), ("u", "0", 99, 99)]],
        {"0": 120},
        position=LSN,
    ),
    CapturedCase(
        f"{HUDI}: testPreCombine, an update before a delete",
        [[("d", "0", None, 111), ("u", "0", 99, 99)]],
        {},
        position=LSN,
    ),
    CapturedCase(
        f"{HUDI}: testPreCombine, a delete before an insert",
        [[("d", "0", None, 111), ("c", "0", 120, 120)]],
        {"0": 120},
        position=LSN,
    ),
    CapturedCase(
        f"{HUDI}: testMergeWithUpdate",
        one_by_one(("c", "1", 99, 99), ("u", "1", 98, 98), ("u", "1", 100, 100)),
        {"1": 100},
        [["+1=99"], [], ["-1=99", "+1=100"]],
        position=LSN,
    ),
    CapturedCase(
        f"{HUDI}: testMergeWithDelete",
        one_by_one(("u", "2", 99, 99), ("d", "2", None, 98), ("d", "2", None, 100)),
        {},
        [["+2=99"], [], ["-2=99"]],
        position=LSN,
    ),
    CapturedCase(
        f"{HUDI}: testInvalidIncomingRecord",
        one_by_one(("c", "4", 99, 99), ("u", "4", 100, None)),
        {"4": 99},
        position=LSN,
        refused=1,
    ),
    CapturedCase(
        f"{MYSQL}: testPreCombine",
        [[("c", "0", 1, 123, "00002"), ("u", "0", 2, 111, "00001"), ("d", "0", None, 23, "00002")]],
        {"0": 1},
        position=BINLOG,
    ),
    CapturedCase(
        f"{MYSQL}: testMergeWithUpdate and testIsCurrentSeqLatest",
        one_by_one(
            ("c", "1", 1, 23, "00000"),
            ("u", "1", 2, 123, "00000"),
            ("u", "1", 3, 100, "00002"),
            ("u", "1", 4, 200, "00001"),
        ),
        {"1": 3},
        [["+1=1"], ["-1=1", "+1=2"], ["-1=2", "+1=3"], []],
        position=BINLOG,
    ),
    CapturedCase(
        "Databricks, APPLY CHANGES, SCD type 1",
        [SCD],
        {"124": 1, "125": 6, "126": 4},
        position=LSN,
    ),
    CapturedCase(
        "Databricks, APPLY CHANGES, SCD type 1 with a late truncate",
        [SCD, [("truncate", None, None, 3)]],
        {"125": 6},
        [["+124=1", "+125=6", "+126=4"], ["-124=1", "-126=4"]],
        position=LSN,
    ),
]
