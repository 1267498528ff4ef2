"""Pacing: the decisions on batches, with the time given."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from txtopo.pacing import (
    START_ROWS,
    Allowance,
    Asked,
    Bucket,
    Offer,
    Pace,
    Pacer,
    Postponed,
    Sizer,
    Turns,
    limits_of,
)


def ask(
    pace: Pacer,
    txid: int,
    unread: Mapping[str, int] | None,
    now_s: float,
    *,
    last: int | None = None,
    partitions: int = 0,
    pending: int = 0,
) -> Allowance | Postponed:
    last = txid - 1 if last is None else last
    return several(pace, txid, {"s": Offer(last, unread, partitions)}, now_s, pending=pending)


def several(
    pace: Pacer,
    txid: int,
    offers: Mapping[str, Offer],
    now_s: float,
    *,
    pending: int = 0,
    counted: Mapping[str, int] = MappingProxyType({}),
) -> Allowance | Postponed:
    """Ask for a batch, and plan it if it is allowed; *counted* are the rows that are then known."""
    return stored(pace, txid, offers, now_s, pending=pending, counted=counted)[0]


def stored(
    pace: Pacer,
    txid: int,
    offers: Mapping[str, Offer],
    now_s: float,
    *,
    pending: int = 0,
    counted: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Allowance | Postponed, dict[str, Any] | None]:
    """Return the answer, and what is stored with the batch."""
    asked = Asked(txid, offers, pending, now_s, 1_000 + now_s)
    answer = pace.ask(asked)
    if isinstance(answer, Postponed):
        return answer, None
    return answer, pace.planned(asked, answer, {id: counted.get(id) for id in answer.limits})


def whole(unread: int | None, *, last: int = 0, divides: bool = True) -> Offer:
    """Return the offer of a spout that plans whole batches."""
    return Offer(last, None if unread is None else {"rows": unread}, divides=divides)


def allowed(answer: Allowance | Postponed) -> int | None:
    assert isinstance(answer, Allowance), answer
    return answer.rows_max


def rate(rows: float) -> Pacer:
    pace = Pacer(Pace(max_rows_per_second=rows))
    pace.begin({}, 1, 0.0, 1_000.0)
    return pace


@pytest.mark.rule("txtopo.pacing", "Rules", 3)
def test_without_a_limit_nothing_is_stored() -> None:
    pace = Pacer(Pace(min_batch_rows=5, max_batch_delay_s=1))

    assert ask(pace, 1, {"0": 9}, 0.0) == Allowance({"s": None})


# ---------------------------------------------------------------- rate


def test_a_rate_begins_with_nothing_and_saves_up_one_second() -> None:
    pace = rate(100)

    assert ask(pace, 1, {"0": 999}, 0.0) == Postponed("max_rows_per_second")
    assert allowed(ask(pace, 1, {"0": 999}, 0.5)) == 50
    assert allowed(ask(pace, 2, {"0": 999}, 3600.0)) == 100, "no burst after an idle time"


def test_what_a_batch_did_not_take_is_not_lost() -> None:
    pace = rate(100)
    assert allowed(ask(pace, 1, None, 1.0)) == 100
    pace.committed(1, 10, 1.1)

    assert allowed(ask(pace, 2, None, 1.1)) == 100, "90 that were left, and 10 of the time since"


def test_an_old_refund_is_not_handed_out_on_top_of_a_full_bucket() -> None:
    pace = rate(100)
    ask(pace, 1, None, 1.0)
    assert allowed(ask(pace, 2, None, 2.0)) == 100
    pace.committed(1, 0, 2.0)

    assert ask(pace, 3, None, 2.0) == Postponed("max_rows_per_second")


def test_a_batch_whose_rows_nobody_counted_counts_as_full() -> None:
    """Spark computes DataFrames without telling how many rows there were."""
    pace = rate(100)
    ask(pace, 1, None, 1.0)
    pace.committed(1, None, 1.0)

    assert ask(pace, 2, None, 1.0) == Postponed("max_rows_per_second")


def test_a_batch_that_took_too_many_is_paid_back() -> None:
    """A query keeps rows of equal keys together."""
    pace = rate(100)
    ask(pace, 1, {"id": 500}, 1.0)
    pace.committed(1, 300, 1.0)

    assert ask(pace, 2, {"id": 200}, 2.9) == Postponed("max_rows_per_second")
    assert allowed(ask(pace, 2, {"id": 200}, 3.5)) == 50


def test_a_rate_below_one_row_a_second_saves_up_for_one() -> None:
    pace = rate(0.1)

    assert isinstance(ask(pace, 1, {"0": 5}, 9.9), Postponed)
    assert allowed(ask(pace, 1, {"0": 5}, 10.1)) == 1


def test_a_batch_that_could_not_be_planned_costs_nothing() -> None:
    pace = rate(100)
    ask(pace, 1, {"0": 999}, 1.0)
    pace.withdraw(1)

    assert allowed(ask(pace, 1, {"0": 999}, 1.0)) == 100


def test_the_next_leader_goes_on_from_the_stored_level() -> None:
    first = rate(100)
    _, metadata = stored(first, 1, {"s": whole(80)}, 1.0)
    assert metadata == {"rows_max": {"s": 80}, "credit": 20.0, "at_s": 1_001.0}

    second = Pacer(Pace(max_rows_per_second=100))
    second.begin({1: metadata}, 1, 500.0, 1_001.3)
    assert allowed(ask(second, 2, {"0": 999}, 500.0)) == 50


@pytest.mark.parametrize(("wall_s", "rows"), [(0.0, 20), (1_001.0, 20), (9e9, 100)])
def test_a_clock_that_was_set_makes_no_burst(wall_s: float, rows: int) -> None:
    pace = Pacer(Pace(max_rows_per_second=100))
    pace.begin({7: {"rows_max": {"s": 80}, "credit": 20.0, "at_s": 1_001.0}}, 8, 0.0, wall_s)

    assert allowed(ask(pace, 8, {"0": 999}, 0.0)) == rows


@pytest.mark.parametrize("seed", range(50))
def test_in_no_time_span_are_more_rows_than_the_rate_and_one_second(seed: int) -> None:
    """At random times, with random rows in the end, refunds and takeovers."""
    chance, pace, now_s = random.Random(seed), rate(50), 0.0
    taken: list[tuple[float, int]] = []
    known: dict[int, object] = {}
    flight: list[tuple[int, int]] = []
    for txid in range(1, 200):
        now_s += chance.expovariate(3)
        offers = {id: whole(None, last=txid - 1) for id in chance.choice(("s", "t", "st"))}
        answer, metadata = stored(pace, txid, offers, now_s)
        if isinstance(answer, Allowance):
            rows = chance.randint(0, answer.rows_max or 0)
            taken.append((now_s, rows))
            known = {txid: metadata}
            flight.append((txid, rows))
        while flight and chance.random() < 0.5:
            pace.committed(*flight.pop(0), now_s)
        if known and chance.random() < 0.05:
            pace = Pacer(Pace(max_rows_per_second=50))
            pace.begin(known, txid, now_s, 1_000 + now_s)
            flight = []

    for at, (begin_s, _) in enumerate(taken):
        rows = 0
        for end_s, more in taken[at:]:
            rows += more
            assert rows <= 50 * (end_s - begin_s) + 50 + 1e-6


# ---------------------------------------------------------------- shares


def shared(rows: int, unread: list[int], turns: Turns | None = None) -> list[int]:
    return [*(turns or Turns()).shared_out(rows, dict(enumerate(unread))).values()]


def test_a_limit_is_shared_out_fairly() -> None:
    assert shared(30, [100, 100, 100]) == [10, 10, 10]
    assert shared(30, [0, 100, 4]) == [0, 26, 4], "what one does not need goes to others"
    assert shared(100, [3, 0, 4]) == [3, 0, 4]
    assert shared(0, [3, 0, 4]) == [0, 0, 0]


def test_a_limit_below_the_number_of_partitions_goes_round() -> None:
    taken, turns = [0] * 5, Turns()
    for _ in range(10):
        shares = shared(2, [9] * 5, turns)
        assert sum(shares) == 2
        taken = [a + b for a, b in zip(taken, shares, strict=True)]

    assert taken == [4] * 5


def test_nobody_starves_whoever_else_has_rows() -> None:
    turns, taken = Turns(), [0] * 3
    for at in range(12):
        shares = shared(1, [9, 9 * (at % 2), 9 * (1 - at % 2)], turns)
        taken = [a + b for a, b in zip(taken, shares, strict=True)]

    assert min(taken) >= 3


@pytest.mark.parametrize("seed", range(50))
def test_shares_add_up_and_none_is_above_what_is_there(seed: int) -> None:
    chance, turns = random.Random(seed), Turns()
    for _ in range(2):
        unread = [chance.choice((0, 1, 7, 1000)) for _ in range(chance.randint(1, 70))]
        rows = chance.randint(0, 3000)
        shares = shared(rows, unread, turns)

        assert sum(shares) == min(rows, sum(unread))
        assert all(0 <= share <= there for share, there in zip(shares, unread, strict=True))
        hungry = [share for share, there in zip(shares, unread, strict=True) if share < there]
        assert not hungry or max(hungry) - min(hungry) <= 1


def test_rows_that_a_batch_in_flight_will_take_are_not_shared_out_again() -> None:
    pace = rate(100)
    first = ask(pace, 1, {"0": 60, "1": 0}, 0.5, partitions=2)
    assert isinstance(first, Allowance)
    assert first.limits == {"s": [50, 0]}

    second = ask(pace, 2, {"0": 60, "1": 3}, 2.0, last=0, partitions=2, pending=1)
    assert isinstance(second, Allowance)
    assert second.limits == {"s": [10, 3]}
    assert ask(pace, 3, {"0": 60, "1": 3}, 2.0, last=0, partitions=2, pending=2) == Postponed(None)


def test_a_spout_that_is_ready_without_rows_stores_a_position() -> None:
    pace = rate(100)

    assert allowed(ask(pace, 1, {}, 0.0)) == 0
    answer, metadata = stored(pace, 1, {"s": Offer(0, {}, partitions=3)}, 0.0)
    assert answer == Allowance({"s": [0, 0, 0]})
    assert metadata == {"rows_max": {"s": [0, 0, 0]}, "credit": 0.0, "at_s": 1_000.0}


# ---------------------------------------------------------------- several spouts


@pytest.mark.rule("txtopo.pacing", "Rules", 2)
def test_a_limit_is_shared_out_among_spouts_and_then_partitions() -> None:
    pace = rate(100)
    offers = {"few": whole(10), "topic": Offer(0, {"0": 500, "1": 20}, 2), "much": whole(None)}

    assert several(pace, 1, offers, 1.0) == Allowance({"few": 10, "topic": [25, 20], "much": 45})


def test_a_spout_without_a_share_is_absent_and_has_its_turn() -> None:
    pace = rate(1)
    turns = []
    for txid in range(1, 5):
        offers = {"one": whole(9, last=txid - 1), "two": whole(9, last=txid - 1)}
        answer = several(pace, txid, offers, float(txid))
        assert isinstance(answer, Allowance)
        turns += [*answer.limits]

    assert sorted(turns) == ["one", "one", "two", "two"]


@pytest.mark.rule("txtopo.pacing", "Rules", 2)
def test_each_partition_has_its_turn_though_its_spout_is_in_every_second_batch() -> None:
    pace, taken = rate(1), {"one": [0, 0], "two": [0, 0]}
    for txid in range(1, 9):
        offers = {id: Offer(txid - 1, {"0": 9, "1": 9}, 2) for id in taken}
        answer = several(pace, txid, offers, float(txid))
        assert isinstance(answer, Allowance)
        for id, limits in answer.limits.items():
            assert isinstance(limits, list)
            taken[id] = [a + b for a, b in zip(taken[id], limits, strict=True)]

    assert taken == {"one": [2, 2], "two": [2, 2]}


def test_who_stores_a_position_is_not_held_back_with_others() -> None:
    pace = Pacer(Pace(min_batch_rows=10, max_batch_delay_s=2))

    offers = {"new": whole(0), "waits": whole(3)}
    assert several(pace, 1, offers, 0.0) == Allowance({"new": None})
    assert pace.now == {"rows_max": 0, "limited_by": "min_batch_rows"}


def test_a_minimum_counts_the_rows_of_all_spouts() -> None:
    pace = Pacer(Pace(min_batch_rows=10, max_batch_delay_s=2))

    assert several(pace, 1, {"one": whole(4), "two": whole(5)}, 0.0) == Postponed("min_batch_rows")
    assert isinstance(several(pace, 1, {"one": whole(4), "two": whole(6)}, 0.1), Allowance)


# ---------------------------------------------------------------- what cannot be divided or counted


@pytest.mark.rule("txtopo.pacing", "Rules", 5)
def test_a_spout_that_takes_no_limit_has_one_batch_in_flight_and_pays_back() -> None:
    pace = rate(100)
    assert isinstance(several(pace, 1, {"s": whole(None, divides=False)}, 1.0), Allowance)
    again = {"s": whole(None, last=1, divides=False)}
    assert several(pace, 2, again, 2.0) == Postponed("max_rows_per_second"), "what had the first?"
    other = {**again, "other": whole(5, last=1)}
    assert several(pace, 2, other, 2.0) == Allowance({"other": 5}), "others go on"
    pace.committed(1, 400, 2.0)

    assert several(pace, 3, again, 3.9) == Postponed("max_rows_per_second"), "405 rows, 4 s"
    assert isinstance(several(pace, 3, again, 4.1), Allowance)


@pytest.mark.rule("txtopo.pacing", "Rules", 5)
def test_rows_that_are_known_when_the_batch_is_planned_count_at_once() -> None:
    pace = rate(100)
    offers = {"s": whole(None, divides=False)}
    answer, metadata = stored(pace, 1, offers, 1.0, counted={"s": 400})
    assert isinstance(answer, Allowance)
    assert metadata == {"rows_max": {"s": 100}, "credit": -300.0, "at_s": 1_001.0}

    assert several(pace, 2, offers, 3.9) == Postponed("max_rows_per_second")
    assert isinstance(several(pace, 2, offers, 4.1), Allowance), "the first is not committed"
    pace.committed(1, None, 4.1)
    pace.committed(2, None, 4.1)
    assert several(pace, 3, offers, 4.1) == Postponed("max_rows_per_second"), "nobody counts again"


def test_a_batch_of_an_earlier_leader_may_have_any_number_of_rows() -> None:
    pace = Pacer(Pace(max_rows_per_second=100))
    pace.begin({1: {"rows_max": {"s": 5}, "credit": 50.0, "at_s": 1_000.0}}, 1, 0.0, 1_000.0)
    offers = {"s": whole(None, last=1, divides=False)}

    assert several(pace, 2, offers, 1.0) == Postponed("max_rows_per_second")
    pace.committed(1, 5, 1.0)
    assert isinstance(several(pace, 2, offers, 1.0), Allowance)


@pytest.mark.rule("txtopo.pacing", "Rules", 6)
def test_rows_that_nobody_counts_wait_for_the_delay() -> None:
    pace = Pacer(Pace(min_batch_rows=10, max_batch_delay_s=2))

    assert several(pace, 1, {"s": whole(None)}, 0.0) == Postponed("min_batch_rows")
    both = {"s": whole(None), "t": whole(10)}
    assert several(pace, 1, both, 1.0) == Allowance({"s": None, "t": None}), "t is enough"
    assert several(pace, 2, {"s": whole(None)}, 1.0) == Postponed("min_batch_rows"), "begins again"
    assert several(pace, 2, {"s": whole(None)}, 3.0) == Allowance({"s": None})


# ---------------------------------------------------------------- min_batch_rows


@pytest.mark.rule("txtopo.pacing", "Rules", 1)
def test_a_batch_waits_for_rows_but_not_for_long() -> None:
    pace = Pacer(Pace(min_batch_rows=10, max_batch_delay_s=2))

    assert ask(pace, 1, {"0": 3}, 0.0) == Postponed("min_batch_rows")
    assert pace.now == {"rows_max": 0, "limited_by": "min_batch_rows"}
    assert ask(pace, 1, {"0": 9}, 1.9) == Postponed("min_batch_rows")
    assert ask(pace, 1, {"0": 9}, 2.0) == Allowance({"s": None})
    assert ask(pace, 2, {"0": 9}, 2.0) == Postponed("min_batch_rows"), "the delay begins again"
    assert ask(pace, 2, {"0": 10}, 2.1) == Allowance({"s": None})


def test_an_empty_source_does_not_count_as_waiting() -> None:
    pace = Pacer(Pace(min_batch_rows=10, max_batch_delay_s=2))
    ask(pace, 1, {"0": 10}, 0.0)
    pace.committed(1, 10, 0.1)

    assert ask(pace, 2, {"0": 1}, 60.0) == Postponed("min_batch_rows")


def test_the_rate_wins_over_the_delay() -> None:
    settings = Pace(min_batch_rows=10, max_batch_delay_s=1, max_rows_per_second=10)
    pace = Pacer(settings)
    pace.begin({}, 1, 0.0, 0.0)

    assert ask(pace, 1, {"0": 99}, 0.5) == Postponed("max_rows_per_second"), "not yet 10"
    assert allowed(ask(pace, 1, {"0": 99}, 1.2)) == 10
    assert ask(pace, 2, {"0": 89}, 1.21) == Postponed("max_rows_per_second"), "none at all"


def test_a_minimum_holds_for_each_batch_of_a_backlog() -> None:
    """Or else the first batch that leaves rows would be the last one that waits for the minimum."""
    pace = Pacer(Pace(min_batch_rows=50, max_batch_delay_s=2, max_rows_per_second=100))
    pace.begin({}, 1, 0.0, 0.0)
    rows: list[int | None] = []
    for at in range(100):
        if isinstance(answer := ask(pace, len(rows) + 1, {"0": 10**6}, at / 10), Allowance):
            rows.append(answer.rows_max)

    assert len(rows) == 19, "each half a second"
    assert {*rows} == {50}


def test_the_target_wins_over_min_batch_rows() -> None:
    settings = Pace(min_batch_rows=50_000, max_batch_delay_s=60, target_commit_s=1)
    pace = Pacer(settings)

    assert allowed(ask(pace, 1, {"0": START_ROWS}, 0.0)) == START_ROWS


# ---------------------------------------------------------------- target


def test_two_batches_are_in_flight_under_a_target() -> None:
    pace = Pacer(Pace(target_commit_s=1))

    assert isinstance(ask(pace, 2, {"0": 5}, 0.0, pending=1), Allowance)
    assert ask(pace, 3, {"0": 5}, 0.0, pending=2) == Postponed("target_commit_s")


Cost = Callable[[int], float]


def constant(value: float) -> Cost:
    return lambda _: value


def sizes(
    fixed_s: Cost,
    each_s: Cost,
    *,
    target_s: float = 1.0,
    commits: int = 120,
    offered: Callable[[int], int] = lambda _: 10**9,
    seed: int = 1,
    noise: float = 0.2,
    spikes: tuple[int, ...] = (),
) -> Iterator[tuple[int, float]]:
    """Yield rows and seconds of each commit of a store; the newest batch is always in flight."""
    chance, sizer = random.Random(seed), Sizer(target_s)
    waiting = min(sizer.rows, offered(0))
    for at in range(commits):
        rows, waiting = waiting, min(sizer.rows, offered(at))
        seconds = (fixed_s(at) + each_s(at) * rows) * (1 + noise * chance.uniform(-1, 1))
        seconds += 10 if at in spikes else 0
        sizer.committed(rows, seconds)
        yield rows, seconds


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("fixed_s", [0.0, 0.02, 0.1])
def test_sizes_settle_where_the_target_is_met_and_do_not_swing(fixed_s: float, seed: int) -> None:
    settled = list(sizes(constant(fixed_s), constant(1e-4), seed=seed))[20:]
    right = (0.5 - fixed_s) / 1e-4

    assert all(0.7 * right <= rows <= 1.3 * right for rows, _ in settled)
    assert all(seconds < 1.0 for _, seconds in settled)


def test_a_store_that_becomes_ten_times_slower_is_followed_and_back() -> None:
    slow = list(sizes(constant(0.02), lambda at: 1e-4 if 40 <= at < 80 else 1e-5, commits=160))

    assert all(30_000 < rows < 70_000 for rows, _ in slow[20:40])
    assert all(3_000 < rows < 7_000 for rows, _ in slow[60:80])
    assert all(30_000 < rows < 70_000 for rows, _ in slow[110:])


def test_one_commit_that_hung_is_no_trend() -> None:
    rows = [each for each, _ in sizes(constant(0.02), constant(1e-4), spikes=(60,))]

    assert min(rows[61:]) >= rows[60] / 4
    assert rows[75] >= 0.7 * rows[60]


def test_after_little_load_a_burst_does_not_overshoot() -> None:
    run = list(sizes(constant(0.02), constant(1e-4), offered=lambda at: 5 if at < 60 else 10**9))

    assert max(seconds for _, seconds in run) < 1.0
    assert run[-1][0] > 3_000, "and the limit finds its size"


def test_where_the_fixed_part_is_above_the_target_batches_do_not_become_tiny() -> None:
    run = list(sizes(constant(0.2), constant(1e-4), target_s=0.1, noise=0.1))[20:]

    assert all(600 <= rows <= 6_000 for rows, _ in run), "about 2,000 rows take as long"


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e9])
def test_the_limit_stays_within_bounds(seconds: float) -> None:
    sizer = Sizer(1.0)
    for _ in range(200):
        sizer.committed(sizer.rows, seconds)
        assert 1 <= sizer.rows <= 10_000_000


# ---------------------------------------------------------------- stored


def test_a_limit_that_is_stored_comes_back() -> None:
    assert limits_of({"rows_max": {"s": 5, "t": [5, 0]}}) == {"s": 5, "t": [5, 0]}
    bad: object
    for bad in (None, {}, {"rows_max": 5}, {"rows_max": {"s": -1}}, {"rows_max": {"s": True}}, []):
        assert limits_of(bad) is None


def test_a_bucket_counts_a_batch_once_that_is_asked_for_again() -> None:
    bucket = Bucket(100)
    bucket.begin(100, 0.0)
    bucket.charge(1, 60, 0.0)
    bucket.charge(1, 60, 0.0)

    assert bucket.level(0.0) == 40
