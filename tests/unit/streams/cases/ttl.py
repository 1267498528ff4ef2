"""What the tests of other engines expect of values with a time to live, as tables.

A case is a list of steps at times in seconds: ``put`` adds a row of a key, ``get`` asks for its
value. In Flink and Spark a step is at a processing time or at a watermark; here it is a txid whose
row has that event time, so that it moves the watermark to it.

Sources, as of 2026:

* Flink: ``TtlStateTestBase`` with the values of ``TtlValueStateTestContext`` and
  ``TtlReducingStateTestContext``; its times are milliseconds, and so is its time to live of 100
* Spark: ``TransformWithValueStateTTLSuite``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Step = tuple[float, str, str, int | None]
"""The time, ``put`` or ``get``, the key, and the value that is put or found."""


@dataclass(frozen=True)
class TtlCase:
    """A value for each key, and when it is found.

    Attributes:
        source: The test that it is taken from.
        after: The time to live, in seconds.
        steps: The steps.
        sums: Whether what is put is added to the value, instead of replacing it.
        differs: What is otherwise in the source, and why; empty for nothing.
    """

    source: str
    after: float
    steps: Sequence[Step]
    sums: bool = False
    differs: str = ""


CASES = [
    TtlCase("Flink testNonExistentValue", 100, [(0, "get", "a", None)]),
    TtlCase(
        "Flink testExactExpirationOnWrite, value",
        100,
        [
            (0, "put", "a", 1),
            (20, "get", "a", 1),
            (50, "put", "a", 2),
            (120, "get", "a", 2),
            (170, "put", "a", 3),
            (220, "get", "a", 3),
            (300, "get", "a", None),
        ],
    ),
    TtlCase(
        "Flink testExactExpirationOnWrite, reducing",
        100,
        [
            (0, "put", "a", 5),
            (20, "get", "a", 5),
            (50, "put", "a", 7),
            (120, "get", "a", 12),
            (170, "put", "a", 6),
            (220, "get", "a", 6),
            (300, "get", "a", None),
        ],
        sums=True,
    ),
    TtlCase(
        "Flink testRelaxedExpirationOnWrite",
        100,
        [(0, "put", "a", 1), (120, "get", "a", None)],
        differs="it may return an expired value until it is cleaned up; here it is never found",
    ),
    TtlCase(
        "Flink testExactExpirationOnRead",
        100,
        [(0, "put", "a", 1), (50, "get", "a", 1), (120, "get", "a", None)],
        differs="a read prolongs the life of a value there; here only a row does",
    ),
    TtlCase(
        "Flink testExpirationTimestampOverflow",
        36_500 * 86_400,
        [(10, "put", "a", 1), (50, "get", "a", 1)],
        differs="its time to live is the largest number; here a hundred years is the longest",
    ),
    TtlCase(
        "Flink testMultipleKeys",
        100,
        [
            (0, "put", "2", 1),
            (50, "put", "1", 1),
            (50, "put", "2", 2),
            (120, "get", "1", 1),
            (120, "get", "2", 2),
            (170, "put", "2", 3),
            (230, "get", "1", None),
            (230, "get", "2", 3),
            (300, "get", "1", None),
            (300, "get", "2", None),
        ],
    ),
    TtlCase(
        "Flink testSnapshotChangeRestore",
        100,
        [
            (0, "put", "1", 1),
            (50, "put", "1", 2),
            (100, "put", "2", 1),
            (180, "get", "1", None),
            (180, "get", "2", 1),
        ],
        differs="what it writes after the snapshot is lost with the restore, so it is left out",
    ),
    TtlCase(
        "Flink testMergeNamespaces",
        100,
        [
            (0, "put", "a", 1),
            (120, "put", "a", 2),
            (150, "put", "a", 4),
            (230, "get", "a", 6),
        ],
        sums=True,
        differs="it merges the values of several namespaces; here one key has the rows of all",
    ),
    TtlCase(
        "Spark: validate state is evicted at ttl expiry, processing time",
        60,
        [(1, "put", "k1", 1), (2, "get", "k1", 1), (65, "get", "k1", None)],
    ),
    TtlCase(
        "Spark: validate state is evicted at ttl expiry, a count of logins",
        60,
        [(1, "put", "k1", 1), (1, "get", "k1", 1), (62, "put", "k1", 1), (62, "get", "k1", 1)],
        sums=True,
    ),
    TtlCase(
        "Spark: validate ttl update updates the expiration timestamp, processing time",
        60,
        [
            (1, "put", "k1", 1),
            (2, "get", "k1", 1),
            (35, "put", "k1", 1),
            (35, "get", "k1", 1),
            (66, "get", "k1", 1),
        ],
    ),
    TtlCase(
        "Spark: validate state is evicted at ttl expiry, event time",
        180,
        [
            (0, "put", "k1", 1),
            (120, "get", "k1", 1),
            (300, "put", "k2", 1),
            (300, "get", "k1", None),
        ],
    ),
    TtlCase(
        "Spark: validate ttl update updates the expiration timestamp, event time",
        180,
        [
            (0, "put", "k1", 1),
            (120, "get", "k1", 1),
            (300, "put", "k1", 2),
            (300, "get", "k1", 2),
        ],
    ),
]
