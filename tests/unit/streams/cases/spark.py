"""Cases of Spark: suites of event time, of session windows and of several stateful operators.

What we do in another way:

* A window closes in the txid whose rows move the watermark to its end. Spark moves the watermark
  between two batches, so it closes in the next one; with a batch without rows in between, which it
  runs by default, the answers come after the same input.
* Spark counts late rows, as many as there are partial aggregates; here they are in a table.
* A watermark is unknown until each source has had a row; in Spark it is 0 then.
* The marks of all sources are durable; Spark keeps only the watermark that follows from them.
* Sessions need no key beside their start; StreamingSessionWindowSuite expects an error there.

Left out, since there is no such thing here: the policy that takes the maximum of several
watermarks, gaps that depend on the row, conf and checkpoints of older versions, errors of Spark's
analysis, NULL as a key.
"""

from __future__ import annotations

from tests.unit.streams.cases.case import Case, Chain, Marks, Rows
from txtopo.streams import session, tumbling

TIMES = "EventTimeWatermarkSuite"
SESSIONS = "StreamingSessionWindowSuite"
MULTI = "MultiStatefulOperatorsSuite"
FIVE = tumbling("5 seconds")
TOUCHED = (
    "Spark closes [25, 30) at the watermark 30; here a row of 30 is not late, and would be in it"
)


def at(*seconds: float) -> Rows:
    """Rows of one key."""
    return [("", second) for second in seconds]


def tens(*seconds: int) -> Rows:
    """Rows whose key is the number of tens."""
    return [(str(second // 10), second) for second in seconds]


def parity(*seconds: int) -> Rows:
    """Rows whose key is 0 for an even number."""
    return [(str(second % 2), second) for second in seconds]


def words(*lines: tuple[str, float]) -> Rows:
    """A row for each word of some lines."""
    return [(word, second) for line, second in lines for word in line.split()]


APPENDED = [
    words(("hello world spark streaming", 40), ("world hello structured streaming", 41)),
    words(("spark streaming", 25)),
    words(("spark streaming", 0)),
    words(("spark streaming", 30)),
    words(("hello apache spark", 60)),
    words(("structured streaming", 90)),
]
MERGED = [
    ("spark", 25, 50, 3),
    ("streaming", 25, 51, 4),
    ("hello", 40, 51, 2),
    ("world", 40, 51, 2),
    ("structured", 41, 51, 1),
]
AFTERWARDS = [
    ("hello", 60, 70, 1),
    ("apache", 60, 70, 1),
    ("spark", 60, 70, 1),
    ("structured", 90, 100, 1),
    ("streaming", 90, 100, 1),
]

CASES = [
    Case(
        f"{TIMES}: event time and watermark metrics",
        FIVE,
        10,
        [at(15), at(10, 12, 14), at(25)],
        closed={3: [("", 10, 15, 3)]},
    ),
    Case(
        f"{TIMES}: event time and watermark metrics with Trigger.Once (SPARK-24699)",
        FIVE,
        10,
        [at(15), at(10, 12, 14), at(25), at(50), at(50)],
        closed={3: [("", 10, 15, 3)], 4: [("", 15, 20, 1), ("", 25, 30, 1)]},
        differs="there no batch without rows is run, so both answers come a batch later",
    ),
    Case(
        f"{TIMES}: append mode",
        FIVE,
        10,
        [at(10, 11, 12, 13, 14, 15), at(25), at(10)],
        closed={2: [("", 10, 15, 5)]},
        late={("", 10): 1},
    ),
    Case(
        f"{TIMES}: append mode - session",
        session("5 seconds"),
        10,
        [tens(10, 11), tens(17), tens(25), tens(35), tens(10), tens(40)],
        closed={4: [("1", 10, 16, 2), ("1", 17, 22, 1)]},
        late={("1", 10): 1},
        differs=TOUCHED,
    ),
    Case(
        f"{TIMES}: append mode - session - no key",
        session("5 seconds"),
        10,
        [at(10, 11), at(17), at(25), at(35), at(10), at(40)],
        closed={4: [("", 10, 16, 2), ("", 17, 22, 1)]},
        late={("", 10): 1},
        differs=TOUCHED,
    ),
    Case(
        f"{TIMES}: update mode - session",
        session("5 seconds"),
        10,
        [tens(10, 11), tens(17), tens(25), tens(35), tens(10), tens(40)],
        kept=[
            ("1", 10, 16, 2),
            ("1", 17, 22, 1),
            ("2", 25, 30, 1),
            ("3", 35, 40, 1),
            ("4", 40, 45, 1),
        ],
        late={("1", 10): 1},
    ),
    Case(
        f"{TIMES}: update mode - session - keys overlapped with sessions",
        session("5 seconds"),
        10,
        [
            parity(10, 11, 12, 13),
            parity(17),
            parity(25),
            parity(35),
            parity(27),
            parity(10),
            parity(40),
        ],
        kept=[
            ("0", 10, 17, 2),
            ("1", 11, 22, 3),
            ("1", 25, 32, 2),
            ("1", 35, 40, 1),
            ("0", 40, 45, 1),
        ],
        late={("0", 10): 1},
    ),
    Case(
        f"{TIMES}: update mode - session - no key",
        session("5 seconds"),
        10,
        [at(10, 11), at(17), at(25), at(35), at(10), at(40)],
        kept=[("", 10, 16, 2), ("", 17, 22, 1), ("", 25, 30, 1), ("", 35, 45, 2)],
        late={("", 10): 1},
    ),
    Case(
        f"{TIMES}: update mode",
        FIVE,
        10,
        [at(10, 11, 12, 13, 14, 15), at(25), at(10, 25), at(10)],
        kept=[("", 10, 15, 5), ("", 15, 20, 1), ("", 25, 30, 2)],
        late={("", 10): 2},
    ),
    Case(
        f"{TIMES}: recovery",
        FIVE,
        10,
        [at(10, 11, 12, 13, 14, 15), at(25), at(10, 27, 30), at(17), at(40)],
        closed={2: [("", 10, 15, 5)], 3: [("", 15, 20, 1)], 5: [("", 25, 30, 2)]},
        late={("", 10): 1, ("", 15): 1},
    ),
    Case(
        f"{TIMES}: complete mode",
        FIVE,
        10,
        [at(10, 11, 12), at(25), at(25), at(10), at(25)],
        kept=[("", 10, 15, 3), ("", 25, 30, 3)],
        late={("", 10): 1},
        differs="complete mode knows no late rows; here the fourth of 10 is in the table of late "
        "rows, and both tables make all rows",
    ),
    Case(
        f"{TIMES}: test no-data flag",
        FIVE,
        10,
        [at(10, 11, 12, 13, 14, 15), at(25)],
        closed={2: [("", 10, 15, 5)]},
        differs="with the flag off Spark answers a batch later",
    ),
    Case(
        f"{SESSIONS}: complete mode - session window",
        session("10 seconds"),
        30,
        [each for number, each in enumerate(APPENDED) if number != 2],
        kept=MERGED + AFTERWARDS,
    ),
    Case(
        f"{SESSIONS}: append mode - session window",
        session("10 seconds"),
        30,
        APPENDED,
        closed={6: MERGED},
        late={("spark", 0): 1, ("streaming", 0): 1},
    ),
    Case(
        f"{SESSIONS}: session window with first/last function",
        session("10 seconds"),
        30,
        [[("a", 41)], [("a", 42)], [("a", 40)], [("b", 100)], [("b", 101)]],
        closed={4: [("a", 40, 52, 3)]},
        differs="Spark answers with the row of 101",
    ),
]

CHAINS = [
    Chain(
        f"{MULTI}: window agg -> window agg, append mode",
        [5, 10],
        [range(10, 22), range(10, 30), range(30, 32)],
        {1: [(10, 2, 10)], 3: [(20, 2, 12)]},
    ),
    Chain(
        f"{MULTI}: agg -> agg -> agg, append mode",
        [5, 10, 20],
        [range(38), range(30, 61)],
        {1: [(0, 2, 20)], 2: [(20, 2, 23), (40, 2, 20)]},
    ),
]

MARKS = [
    Marks(
        f"{TIMES}: watermark with 2 streams",
        [10, 5],
        [
            ([[11], []], None),
            ([[], [6]], 1),
            ([[], [8]], 1),
            ([[21], []], 3),
            ([[], [17, 28, 39]], 11),
            ([[31], []], 21),
            ([[41], []], 31),
            ([[51], []], 34),
            ([[100], [100]], 90),
            ([[120], [110]], 105),
            ([[130], [125]], 120),
            ([[100], [100]], 120),
            ([[140], [100]], 120),
            ([[100], [135]], 130),
            ([[200], [190]], 185),
            ([[], [200]], 190),
            ([[200], []], 190),
        ],
        differs="the first one is 0 in Spark; after its restart Spark has forgotten that the first "
        "source was at 200, and waits at 185 for it",
    ),
    Marks(
        f"{TIMES}: MultipleWatermarkPolicy: min",
        [10, 15],
        [([[20], [30]], 10), ([[120], [130]], 110), ([[], [150]], 110)],
    ),
]
