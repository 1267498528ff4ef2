"""Cases of Kafka Streams: KStreamSessionWindowAggregateProcessorTest. Each row is a txid.

What we do in another way:

* ``window_end`` is the last event time plus the gap; there the end is the last event time. A row
  exactly a gap after another is in its session in both.
* A session is late there when its last event time is behind stream time by more than the grace, so
  up to a gap earlier than here.
* There an updated session is sent on with each record; here it is in the table.

Left out: NULL as a key (a state refuses it), caching, metrics.
"""

from __future__ import annotations

from tests.unit.streams.cases.case import Case
from txtopo.streams import session

NAME = "KStreamSessionWindowAggregateProcessorTest"
GAP = 300
MS = 0.001
DAY = 86_400
FIVE_MINUTES = session("5 minutes")
EARLIER = (
    "there the last row is late, since its session of one row ends with it; here it is in time"
)

CASES = [
    Case(
        f"{NAME}: shouldCreateSingleSessionWhenWithinGap",
        FIVE_MINUTES,
        DAY,
        [[("john", 0)], [("john", 0.5)]],
        kept=[("john", 0, 0.5 + GAP, 2)],
    ),
    Case(
        f"{NAME}: shouldMergeSessions",
        FIVE_MINUTES,
        DAY,
        [[("mel", 0)], [("mel", GAP + MS)], [("mel", GAP / 2)]],
        kept=[("mel", 0, GAP + MS + GAP, 3)],
    ),
    Case(
        f"{NAME}: shouldUpdateSessionIfTheSameTime",
        FIVE_MINUTES,
        DAY,
        [[("mel", 0)], [("mel", 0)]],
        kept=[("mel", 0, GAP, 2)],
    ),
    Case(
        f"{NAME}: shouldHaveMultipleSessionsForSameIdWhenTimestampApartBySessionGap",
        FIVE_MINUTES,
        DAY,
        [
            [("mel", 0)],
            [("mel", GAP + MS)],
            [("mel", GAP + MS)],
            [("mel", 2 * GAP + 2 * MS)],
            [("mel", 2 * GAP + 2 * MS)],
            [("mel", 2 * GAP + 2 * MS)],
        ],
        kept=[
            ("mel", 0, GAP, 1),
            ("mel", GAP + MS, 2 * GAP + MS, 2),
            ("mel", 2 * GAP + 2 * MS, 3 * GAP + 2 * MS, 3),
        ],
    ),
    Case(
        f"{NAME}: shouldRemoveMergedSessionsFromStateStore",
        FIVE_MINUTES,
        DAY,
        [[("a", 0)], [("a", 0.1)]],
        kept=[("a", 0, 0.1 + GAP, 2)],
    ),
    Case(
        f"{NAME}: shouldHandleMultipleSessionsAndMerging",
        FIVE_MINUTES,
        DAY,
        [
            [("a", 0)],
            [("b", 0)],
            [("c", 0)],
            [("d", 0)],
            [("d", GAP / 2)],
            [("a", GAP + MS)],
            [("b", GAP + MS)],
            [("a", GAP + MS + GAP / 2)],
            [("c", GAP + MS + GAP / 2)],
        ],
        kept=[
            ("a", 0, GAP, 1),
            ("b", 0, GAP, 1),
            ("c", 0, GAP, 1),
            ("d", 0, GAP / 2 + GAP, 2),
            ("b", GAP + MS, 2 * GAP + MS, 1),
            ("a", GAP + MS, 2 * GAP + MS + GAP / 2, 2),
            ("c", GAP + MS + GAP / 2, 2 * GAP + MS + GAP / 2, 1),
        ],
    ),
    Case(
        f"{NAME}: shouldGetAggregatedValuesFromValueGetter",
        FIVE_MINUTES,
        DAY,
        [[("a", 0)], [("a", GAP + MS)], [("a", GAP + MS)]],
        kept=[("a", 0, GAP, 1), ("a", GAP + MS, 2 * GAP + MS, 2)],
    ),
    Case(
        f"{NAME}: shouldImmediatelyForwardNewSessionWhenNonCachedStore",
        FIVE_MINUTES,
        DAY,
        [[("a", 0)], [("b", 0)], [("c", 0)]],
        kept=[("a", 0, GAP, 1), ("b", 0, GAP, 1), ("c", 0, GAP, 1)],
    ),
    Case(
        f"{NAME}: shouldImmediatelyForwardRemovedSessionsWhenMerging",
        FIVE_MINUTES,
        DAY,
        [[("a", 0)], [("a", 5 * MS)]],
        kept=[("a", 0, 5 * MS + GAP, 2)],
    ),
    Case(
        f"{NAME}: shouldLogAndMeterWhenSkippingLateRecordWithZeroGrace",
        session("10 milliseconds"),
        0,
        [[("dummy", 0)], [("OnTime1", 0)], [("dummy", MS)], [("Late1", 0)]],
        kept=[("dummy", 0, 11 * MS, 2), ("OnTime1", 0, 10 * MS, 1), ("Late1", 0, 10 * MS, 1)],
        differs=EARLIER,
    ),
    Case(
        f"{NAME}: shouldLogAndMeterWhenSkippingLateRecordWithNonzeroGrace",
        session("10 milliseconds"),
        MS,
        [
            [("dummy", 0)],
            [("OnTime1", 0)],
            [("dummy", MS)],
            [("OnTime2", 0)],
            [("dummy", 2 * MS)],
            [("Late1", 0)],
        ],
        kept=[
            ("dummy", 0, 12 * MS, 3),
            ("OnTime1", 0, 10 * MS, 1),
            ("OnTime2", 0, 10 * MS, 1),
            ("Late1", 0, 10 * MS, 1),
        ],
        differs=EARLIER,
    ),
]
