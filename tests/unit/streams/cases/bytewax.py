"""Cases of Bytewax: pytests/operators/windowing. Each row is a txid, where rows come one by one.

What we do in another way:

* ``window_end`` of a session is the last event time plus the gap; there it is the last event time.
* Windows are aligned with 1970, and moved by ``offset``; there with a time of the user.
* At the end of its input Bytewax closes all windows; here the last ones stay open.
* Windows that merge there keep a number; here they have the earlier beginning as their key.

Left out: windows by system time, snapshots, joins, and what only looks at the parts of a windower.
"""

from __future__ import annotations

from tests.unit.streams.cases.case import Case
from txtopo.streams import session, sliding, tumbling

FOLD = "test_fold_window.py"
SESSIONS = "test_session_windower.py"
SLIDING = "test_sliding_windower.py"
TEN = session("10 seconds")
DAY = 86_400
ENDLESS = "there the last windows close at the end of the input"


def rows(*seconds: float) -> list[list[tuple[str, float]]]:
    """A row in each txid."""
    return [[("ALL", second)] for second in seconds]


def sessions(name: str, *seconds: float, are: list[tuple[float, float, int]]) -> Case:
    """Sessions at the end, with their last event times."""
    kept = [("ALL", start, last + 10, count) for start, last, count in are]
    return Case(f"{SESSIONS}: {name}", TEN, DAY, rows(*seconds), kept=kept)


CASES = [
    Case(
        f"{FOLD}: test_fold_window_tumbling",
        tumbling("10 seconds"),
        0,
        rows(0, 4, 8, 16),
        closed={4: [("ALL", 0, 10, 3)]},
        kept=[("ALL", 0, 10, 3), ("ALL", 10, 20, 1)],
        differs=ENDLESS,
    ),
    Case(
        f"{FOLD}: test_fold_window_session",
        session("5 seconds"),
        0,
        rows(1, 5, 11, 12, 13, 14, 20, 1),
        closed={3: [("ALL", 1, 10, 2)], 7: [("ALL", 11, 19, 4)]},
        kept=[("ALL", 1, 10, 2), ("ALL", 11, 19, 4), ("ALL", 20, 25, 1)],
        late={("ALL", 1): 1},
        differs=ENDLESS,
    ),
    Case(
        f"{FOLD}: test_fold_window_sliding",
        sliding("10 seconds", every="5 seconds"),
        0,
        rows(1, 4, 8, 12, 13, 14, 16, 1),
        kept=[
            ("ALL", -5, 5, 2),
            ("ALL", 0, 10, 3),
            ("ALL", 5, 15, 4),
            ("ALL", 10, 20, 4),
            ("ALL", 15, 25, 1),
        ],
        late={("ALL", -5): 1, ("ALL", 0): 1},
        differs=ENDLESS,
    ),
    sessions("test_initial_session", 0, are=[(0, 0, 1)]),
    sessions("test_extend_forward_within_gap", 0, 5, are=[(0, 5, 2)]),
    sessions("test_extend_forward_exact_gap", 0, 10, are=[(0, 10, 2)]),
    sessions("test_extend_backward_within_gap", 0, -5, are=[(-5, 0, 2)]),
    sessions("test_extend_backward_exact_gap", 0, -10, are=[(-10, 0, 2)]),
    sessions("test_extend_merge", 0, 20, 10, are=[(0, 20, 3)]),
    sessions("test_within_existing", 0, 10, 5, are=[(0, 10, 3)]),
    sessions("test_find_merges_none", 0, 20, are=[(0, 0, 1), (20, 20, 1)]),
    sessions("test_find_merges_within_gap", 5, 0, are=[(0, 5, 2)]),
    sessions("test_find_merges_exact_gap", 10, 0, are=[(0, 10, 2)]),
    sessions("test_find_merges_multi", 0, 10, 5, are=[(0, 10, 3)]),
    sessions(
        "test_find_merges_no_yes_no",
        0,
        20,
        25,
        40,
        are=[(0, 0, 1), (20, 25, 2), (40, 40, 1)],
    ),
]

# Name, every, second, and the numbers of the windows of ten seconds that a row is in.
ASSIGNED = [
    ("test_intersect_overlap_offset_divisible_by_length_bulk_positive", 5, 13, [1, 2]),
    ("test_intersect_overlap_offset_divisible_by_length_bulk_negative", 5, -3, [-2, -1]),
    ("test_intersect_overlap_offset_divisible_by_length_bulk_zero_negative", 5, 3, [-1, 0]),
    ("test_intersect_overlap_offset_divisible_by_length_bulk_zero_positive", 5, 7, [0, 1]),
    ("test_intersect_overlap_offset_divisible_by_length_edge_positive", 5, 15, [2, 3]),
    ("test_intersect_overlap_offset_divisible_by_length_edge_negative", 5, -5, [-2, -1]),
    ("test_intersect_overlap_offset_divisible_by_length_edge_start_zero", 5, 0, [-1, 0]),
    ("test_intersect_overlap_offset_divisible_by_length_edge_end_zero", 5, 10, [1, 2]),
    ("test_intersect_overlap_offset_indivisible_by_length_bulk_positive", 3, 11, [1, 2, 3]),
    (
        "test_intersect_overlap_offset_indivisible_by_length_bulk_positive_remainder",
        3,
        11.5,
        [1, 2, 3],
    ),
    ("test_intersect_overlap_offset_indivisible_by_length_bulk_negative", 3, -1, [-3, -2, -1]),
    (
        "test_intersect_overlap_offset_indivisible_by_length_bulk_negative_remainder",
        3,
        -1.5,
        [-3, -2, -1],
    ),
    ("test_intersect_overlap_offset_indivisible_by_length_bulk_zero", 3, 5, [-1, 0, 1]),
    ("test_intersect_overlap_offset_indivisible_by_length_edge_start_positive", 7, 14, [1, 2]),
    ("test_intersect_overlap_offset_indivisible_by_length_edge_start_negative", 7, -7, [-2, -1]),
    ("test_intersect_overlap_offset_indivisible_by_length_edge_start_zero", 7, 0, [-1, 0]),
    ("test_intersect_overlap_offset_indivisible_by_length_edge_end_positive", 7, 17, [2]),
    ("test_intersect_overlap_offset_indivisible_by_length_edge_end_negative", 7, -4, [-1]),
    ("test_intersect_overlap_offset_indivisible_by_length_edge_end_zero", 7, 10, [1]),
    ("test_intersect_tumble_bulk_positive", 10, 15, [1]),
    ("test_intersect_tumble_bulk_negative", 10, -5, [-1]),
    ("test_intersect_tumble_bulk_zero", 10, 5, [0]),
    ("test_intersect_tumble_edge_positive", 10, 20, [2]),
    ("test_intersect_tumble_edge_negative", 10, -10, [-1]),
    ("test_intersect_tumble_edge_zero_start", 10, 0, [0]),
    ("test_intersect_tumble_edge_zero_end", 10, 10, [1]),
]
