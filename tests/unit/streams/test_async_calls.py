"""Calls to services: order, limit, what a failure does, and what a replay compares."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.harness.runs import LOCAL, Storage, run_to_end, started
from tests.unit.streams.call_cases import CASES, CallCase
from tests.unit.streams.call_programs import judged_call_program
from tests.unit.streams.seeds import assert_promises_kept
from txtopo import (
    BatchBolt,
    Committer,
    Config,
    FailedException,
    RecordFailed,
    StreamBuilder,
    Sum,
    Topology,
    TopologyError,
    open_state,
)
from txtopo.attempt import TransactionAttempt
from txtopo.collector import ArrowOutputCollector, BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.errors import EmitError, NonRepeatableBatch, PoisonBatchError, RunLostError, TxtopoError
from txtopo.operations import Access, replay
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from txtopo.stages.replays import AnswersDigest
from txtopo.streams import async_calls
from txtopo.streams.async_calls import CallRules, MapAsync
from txtopo.streams.calls_loop import calls_loop
from txtopo.tuples import Fields, Stream

NUMBERED = Fields("number long, script string")
ATTEMPT = TransactionAttempt(1, 0, 1)
LIMIT_S = 10


class Service:
    """Answers calls as each row says, and remembers them."""

    def __init__(self) -> None:
        self.tries: Counter[int] = Counter()
        self.now = self.most = 0
        self.stopped: list[int] = []
        self.gate: asyncio.Event | None = None

    async def ask(self, row: Any) -> list[Any]:
        number = row["number"]
        answers = row["script"].split()
        answer = answers[min(self.tries[number], len(answers) - 1)]
        self.tries[number] += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.answer(answer)
        except asyncio.CancelledError:
            self.stopped.append(number)
            raise
        finally:
            self.now -= 1
        return [number]

    async def answer(self, answer: str) -> None:
        match answer:
            case "raise":
                raise ConnectionError("the service is away")
            case "bad":
                raise ValueError("no such city")
            case "record":
                raise RecordFailed("the city has no name")
            case "hang":
                await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_calls, "FIRST_PAUSE_S", 0)


def applied(
    function: Callable[..., Any],
    scripts: Sequence[str],
    limit: int = 100,
    timeout_s: float | None = None,
    retries: int = 0,
    listed: tuple[type[Exception], ...] = (),
    context: TaskContext | None = None,
    letters: int | None = 100,
) -> tuple[list[int], list[Any]]:
    """Return what an operator emits for rows with these scripts, and its dead letters."""
    aside: list[Any] = []
    calls = CallRules(limit, timeout_s, retries, listed)
    operator = MapAsync("asked", NUMBERED, Fields("number long"), function, calls)
    collector = BatchOutputCollector(
        "asked",
        {"default": Stream(Fields("number long"))},
        lambda stream, rows, targets: aside.extend(rows),
        lambda stream, batch: None,
        letters,
    )
    context = context or TaskContext("t", "asked", 0, 1)
    bound = operator.bound(context, ArrowOutputCollector(collector))
    batch = pa.RecordBatch.from_pydict(
        {"number": range(len(scripts)), "script": scripts}, schema=NUMBERED.arrow_schema()
    )
    found = [n for part in bound.apply(batch, ATTEMPT) for n in part["number"].to_pylist()]
    collector.flush()
    return found, aside


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.peer)
@pytest.mark.rule("txtopo.streams.async_calls", "Rules", 2)
def test_calls_end_as_those_of_a_peer(case: CallCase) -> None:
    service = Service()
    hangs = any("hang" in script for script in case.rows)
    timeout_s = 0.01 if hangs else None

    def run() -> tuple[list[int], list[Any]]:
        return applied(
            service.ask, case.rows, timeout_s=timeout_s, retries=case.retries, listed=case.listed
        )

    if case.answered is None:
        with pytest.raises(FailedException, match=case.error) as caught:
            run()
        assert "{'number': 0, 'script': " in str(caught.value)
        assert caught.value.__cause__ is not None
    else:
        answered, letters = run()
        assert answered == list(case.answered)
        assert [json.loads(each[4])["number"] for each in letters] == list(case.set_aside)
    assert tuple(service.tries[n] for n in range(len(case.rows))) == case.tries


@pytest.mark.rule("txtopo.streams.async_calls", "Rules", 1)
def test_rows_keep_their_order_whichever_call_answers_first() -> None:
    finished: list[int] = []
    events: dict[int, asyncio.Event] = {n: asyncio.Event() for n in range(6)}

    async def ask(row: Any) -> list[Any]:
        number = row["number"]
        if number < 5:  # each waits for the one behind it
            await events[number + 1].wait()
        finished.append(number)
        events[number].set()
        return [number]

    assert applied(ask, ["ok"] * 6)[0] == [0, 1, 2, 3, 4, 5]
    assert finished == [5, 4, 3, 2, 1, 0]


@pytest.mark.rule("txtopo.streams.async_calls", "Rules", 1)
@pytest.mark.parametrize("limit", [1, 3])
def test_a_task_makes_no_more_calls_at_a_time_than_the_limit(limit: int) -> None:
    service, full = Service(), asyncio.Event()

    async def ask(row: Any) -> list[Any]:
        service.now += 1
        service.most = max(service.most, service.now)
        if service.now == limit:
            full.set()
        await full.wait()  # so many calls are made at a time, or this never ends
        await asyncio.sleep(0)
        service.now -= 1
        return [row["number"]]

    assert applied(ask, ["ok"] * 10, limit)[0] == list(range(10))
    assert service.most == limit


@pytest.mark.rule("txtopo.streams.async_calls", "Rules", 3)
def test_the_first_failure_stops_the_other_calls() -> None:
    service = Service()
    with pytest.raises(FailedException, match="ConnectionError"):
        applied(service.ask, ["hang", "raise", "hang", "ok"])

    assert sorted(service.stopped) == [0, 2]


@pytest.mark.rule("txtopo.streams.async_calls", "Rules", 3)
@pytest.mark.parametrize(("raises", "retries"), [(True, 1), (False, 0)])
def test_a_function_that_catches_that_it_is_stopped_is_not_called_again(
    raises: bool, retries: int
) -> None:
    asked: list[int] = []

    async def ask(row: Any) -> list[Any]:
        asked.append(row["number"])
        if row["number"] == 1:
            raise ValueError("the batch fails")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if raises:
                raise ConnectionError("the connection was closed") from None
        return [row["number"]]

    with pytest.raises(FailedException, match="the batch fails"):
        applied(ask, ["ok"] * 10, limit=2, retries=retries, timeout_s=LIMIT_S)
    assert asked == [0, 1, *[1] * retries]


@pytest.mark.rule("txtopo.streams.async_calls", "Rules", 6)
def test_calls_of_an_abandoned_attempt_are_stopped() -> None:
    service, asked, ended = Service(), threading.Event(), threading.Event()

    async def ask(row: Any) -> list[Any]:
        asked.set()
        try:
            return await service.ask(row)
        finally:
            ended.set()

    context = TaskContext("t", "asked", 0, 1, abandoned=asked.is_set)
    with pytest.raises(RunLostError, match="abandoned"):
        applied(ask, ["hang"], context=context)
    assert ended.wait(LIMIT_S)
    assert service.stopped == [0]


def test_a_call_that_cancels_itself_has_not_answered() -> None:
    async def ask(row: Any) -> list[Any]:
        raise asyncio.CancelledError

    with pytest.raises(FailedException, match="CancelledError"):
        applied(ask, ["ok"])


def test_a_call_may_even_exit() -> None:
    async def ask(row: Any) -> list[Any]:
        raise SystemExit(3)

    with pytest.raises(FailedException, match="SystemExit"):
        applied(ask, ["ok"])
    assert calls_loop().is_running()


def test_the_loop_survives_a_task_of_a_function_that_exits() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def ask() -> BaseException | None:
        task = asyncio.create_task(leave())
        await asyncio.wait([task])
        return task.exception()

    asked = asyncio.run_coroutine_threadsafe(ask(), calls_loop())
    assert repr(asked.result(LIMIT_S)) == "SystemExit(3)"


@pytest.mark.parametrize("error", [FailedException("again"), TopologyError("wrong")])
def test_an_error_of_txtopo_keeps_its_meaning_and_names_the_row(error: TxtopoError) -> None:
    async def ask(row: Any) -> list[Any]:
        raise error

    with pytest.raises(type(error)) as caught:
        applied(ask, ["ok"], listed=(ValueError,))
    assert "'number': 0" in caught.value.__notes__[-1]


def test_a_dead_letter_without_a_place_for_it_is_raised() -> None:
    with pytest.raises(RecordFailed):
        applied(Service().ask, ["record"], letters=None)


@pytest.mark.parametrize("answer", [7, None, [1, 2], "1"])
def test_an_answer_is_a_row(answer: Any) -> None:
    async def ask(row: Any) -> Any:
        return answer

    with pytest.raises(EmitError, match="'asked'"):
        applied(ask, ["ok"])


def test_a_plain_function_is_called_on_threads() -> None:
    both = threading.Barrier(2)

    def ask(row: Any) -> list[Any]:
        both.wait(LIMIT_S)
        return [row["number"]]

    assert applied(ask, ["ok"] * 4, limit=2)[0] == [0, 1, 2, 3]


def test_a_plain_function_may_raise_what_no_future_takes() -> None:
    with pytest.raises(FailedException, match="StopIteration"):
        applied(lambda row: [next(iter([]))], ["ok"], timeout_s=LIMIT_S)


def test_a_plain_function_may_return_a_coroutine() -> None:
    service = Service()
    assert applied(lambda row: service.ask(row), ["ok", "ok"])[0] == [0, 1]


def test_a_thread_that_does_not_return_is_given_up() -> None:
    never = threading.Event()
    with pytest.raises(FailedException, match="no answer within"):
        applied(lambda row: never.wait(), ["ok"], timeout_s=0.01)
    never.set()


def test_a_loop_that_runs_already_does_no_harm() -> None:
    async def cell() -> list[int]:
        return applied(Service().ask, ["ok", "ok"])[0]

    assert asyncio.run(cell()) == [0, 1]


def test_a_client_outlives_the_batch_that_made_it() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def ask(row: Any) -> list[Any]:
        loops.append(asyncio.get_running_loop())
        return [row["number"]]

    for _ in range(2):
        applied(ask, ["ok"])
    assert loops[0] is loops[1]


@pytest.mark.integration
def test_a_fork_makes_a_loop_of_its_own() -> None:
    applied(Service().ask, ["ok"])
    child = os.fork()
    if not child:
        answered = applied(Service().ask, ["ok", "ok"])[0] == [0, 1]
        os._exit(0 if answered else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


# ------------------------------------------------------------------------- within topologies

ORDERS = {0: [["tea", 1], ["milk", 2], ["tea", 3], ["rice", 4]], 1: [["oil", 5], ["tea", 6]]}
DECLARED = Fields("product string, pieces long")
ANSWERS: list[Any] = []
"""What changes between two attempts."""


def topology(
    storage: Storage, ask: Any, spout: Any = MemoryTransactionalSpout, **settings: Any
) -> Topology:
    letters = open_state(storage.url) if settings.pop("letters", False) else None
    builder = StreamBuilder("asking", dead_letters=letters)
    source = builder.source("orders", spout(ORDERS, DECLARED, 1))
    asked = source.filter(lambda row: row["pieces"] > 0).map_async(
        ask, "product string, cents long", **settings
    )
    state = storage.state("totals")
    asked.filter(lambda row: row["cents"] != 0).group_by("product").persistent_aggregate(
        state, total=Sum("cents")
    )
    return builder.build_topology()


async def price(row: Any) -> list[Any]:
    if row["product"] == "rice":
        raise ValueError("no price")
    return [row["product"], row["pieces"] * 10]


@pytest.mark.rule("txtopo.streams.async_calls", "Rules", 3)
def test_a_row_that_cannot_be_asked_for_becomes_a_dead_letter() -> None:
    storage = Storage.in_memory()
    run_to_end(topology(storage, price, letters=True, dead_letters_on=ValueError), storage)

    assert storage.read("totals") == {"tea": 100, "milk": 20, "oil": 50}
    (letter,) = storage.read("dead_letters").values()
    assert letter["component"] == "orders.filter.map_async.filter"
    assert json.loads(letter["place"]) == {"operator": "orders.filter.map_async"}
    assert json.loads(letter["record"]) == {"product": "rice", "pieces": 4}
    assert (letter["error"], letter["message"]) == ("ValueError", "no price")


@pytest.mark.rule("txtopo.streams.async_calls", "Rules", 3)
def test_a_batch_whose_call_fails_is_done_again() -> None:
    ANSWERS[:] = ["away", "away"]

    async def ask(row: Any) -> list[Any]:
        if ANSWERS and row["product"] == "rice":
            ANSWERS.pop()
            raise ConnectionError("the service is away")
        return [row["product"], row["pieces"]]

    storage = Storage.in_memory()
    run_to_end(topology(storage, by_reference(ask)), storage)
    assert storage.read("totals") == {"tea": 10, "milk": 2, "rice": 4, "oil": 5}


def test_a_batch_whose_call_always_fails_ends_the_run() -> None:
    storage = Storage.in_memory()
    with pytest.raises(PoisonBatchError, match=r"no price.*'product': 'rice', 'pieces': 4"):
        run_to_end(topology(storage, price), storage)


FUNCTIONS: dict[str, Any] = {}


class by_reference:
    """A function that is not copied with the topology, so that it sees what the test sees."""

    def __init__(self, function: Any) -> None:
        self.name = function.__qualname__
        FUNCTIONS[self.name] = function

    async def __call__(self, row: Any) -> Any:
        return await FUNCTIONS[self.name](row)


class FailsOnce(BatchBolt, Committer):
    """Sums what it gets; fails the first attempt at txid 2 in its commit phase."""

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.state, self.attempt, self.sum = context.state("sums"), attempt, 0

    def execute(self, tuple: Any) -> None:
        self.sum += tuple["cents"]

    def finish_batch(self) -> None:
        if (self.attempt.txid, self.attempt.attempt) == (2, 0):
            raise FailedException("the first attempt fails in its commit phase")
        with self.state.transaction(self.attempt) as state:
            before = state.get(("sum",))
            state.put(("sum",), (self.sum + (before or 0),))


def summed(storage: Storage, spout: Any, letters: bool = False) -> Topology:
    builder = StreamBuilder("asking", dead_letters=open_state(storage.url) if letters else None)
    asked = builder.source("orders", spout(ORDERS, DECLARED, 1)).map_async(
        by_reference(changing), "product string, cents long", id="ask", parallelism=2
    )
    asked.filter(lambda row: row["cents"]).to(
        FailsOnce(), id="sums", by=(), states={"sums": storage.state("sums")}
    )
    return builder.build_topology()


async def changing(row: Any) -> list[Any]:
    """Answer as the test says: with one more each time, with a price, or not at all."""
    answer = ANSWERS[0](row)
    if isinstance(answer, Exception):
        raise answer
    return [row["product"], answer]


def one_more(row: Any) -> int:
    ANSWERS.append(None)
    return len(ANSWERS)


def set_aside_later(row: Any) -> Any:
    ANSWERS.append(None)
    return 7 if len(ANSWERS) <= 6 else RecordFailed("no more")


@pytest.mark.parametrize(
    ("answer", "letters"), [(one_more, False), (set_aside_later, True)], ids=["value", "letter"]
)
@pytest.mark.rule("txtopo.streams.async_calls", "Rules", 4)
@pytest.mark.rule("txtopo.stages.replays", "Rules", 5)
def test_a_replay_that_is_answered_in_another_way_is_told(answer: Any, letters: bool) -> None:
    storage, ANSWERS[:] = Storage.in_memory(), [answer]
    told = (
        r"the replay of txid 2 of topology 'asking' was answered differently.*got 2 tuples "
        r"\(digest \w+\) in bolt 'ask.*opaque"
    )
    for _ in range(2):  # a restart remembers it
        with pytest.raises(NonRepeatableBatch, match=told) as caught:
            run_to_end(summed(storage, MemoryTransactionalSpout, letters), storage)
        assert caught.value.txid == 2
    assert storage.ledger("sums").txid == 1


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.rule("txtopo.streams.async_calls", "Rules", 4)
def test_a_replay_with_equal_answers_is_committed_whatever_the_slots(slots: int) -> None:
    storage, ANSWERS[:] = Storage.in_memory(), [lambda row: row["pieces"] * 10]
    with pytest.raises(LookupError, match="stop"):
        run_to_end(summed_and_stopped(storage), storage)

    config = Config(carrier="local", zookeeper="memory", slots=slots, backoff_s=0.01)
    run_to_end(summed(storage, MemoryTransactionalSpout), storage, config)
    assert storage.read("sums") == {"sum": 210}


def summed_and_stopped(storage: Storage) -> Topology:
    found = summed(storage, MemoryTransactionalSpout)
    found.graph.components["sums"].prototype.__class__ = Stops
    return found


class Stops(FailsOnce):
    """Ends the run instead."""

    def finish_batch(self) -> None:
        if self.attempt.txid == 2:
            raise LookupError("stop")
        super().finish_batch()


@pytest.mark.rule("txtopo.streams.async_calls", "Rules", 4)
def test_below_an_opaque_spout_a_replay_may_be_answered_in_another_way() -> None:
    storage, ANSWERS[:] = Storage.in_memory(), [one_more]
    run_to_end(summed(storage, OpaqueMemoryTransactionalSpout), storage)
    assert storage.ledger("sums").txid == 4


def test_the_verb_replay_shows_answers_that_differ() -> None:
    storage, ANSWERS[:] = Storage.in_memory(), [lambda row: row["pieces"]]
    built = summed(storage, MemoryTransactionalSpout)
    run_to_end(built, storage)

    def differences() -> tuple[str, ...]:
        return replay(built, 3, LOCAL, access=Access(ensemble=storage.ensemble)).differences

    assert differences() == ()
    ANSWERS[:] = [one_more]
    assert any(each.startswith("answers of 'ask.filter': differs") for each in differences())


def test_answers_count_with_their_rows_and_in_any_order() -> None:
    def content(*pairs: tuple[Any, Any]) -> Any:
        digest = AnswersDigest()
        for row, answer in pairs:
            digest.add(row, answer)
        return digest.content

    one, two = ((1, "a"), (10,)), ((2, "b"), (20,))
    assert content(one, two) == content(two, one)
    assert AnswersDigest.sum([content(one), content(two)]) == content(one, two)
    for other in ([one], [one, one], [((1, "a"), (20,)), ((2, "b"), (10,))], [one, (two[0], None)]):
        assert content(*other) != content(one, two)


def test_a_run_that_is_stopped_stops_its_calls() -> None:
    asked, ended = threading.Event(), threading.Event()

    async def ask(row: Any) -> list[Any]:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return []

    storage = Storage.in_memory()
    with started(topology(storage, by_reference(ask)), LOCAL, storage.ensemble):
        assert asked.wait(LIMIT_S)
    assert ended.wait(LIMIT_S)


def source(builder: StreamBuilder) -> Any:
    return builder.source("orders", MemoryTransactionalSpout(ORDERS, DECLARED, 1))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"limit": 0}, "limit of map_async is wrong; got 0; expected a whole number of at least 1"),
        ({"limit": True}, "limit of map_async is wrong"),
        ({"retries": -1}, "retries of map_async is wrong"),
        ({"timeout": "soon"}, "timeout of map_async is not a duration"),
        ({"timeout": "0 seconds"}, "timeout of map_async is out of range"),
        ({"dead_letters_on": [Exception]}, "map_async cannot produce dead letters on"),
        ({"dead_letters_on": 7}, "map_async cannot produce dead letters on 7"),
        ({"dead_letters_on": ValueError}, "dead_letters_on, but the topology has nowhere"),
    ],
)
def test_mistakes_are_found_while_a_program_is_built(settings: Any, text: str) -> None:
    with pytest.raises(TopologyError, match=text):
        source(StreamBuilder("t")).map_async(price, "product string", **settings)


async def stream_of_answers(row: Any) -> Any:
    yield row


@pytest.mark.parametrize("function", [stream_of_answers, lambda: 1, "price"])
def test_what_cannot_be_called_with_a_row_is_refused(function: Any) -> None:
    with pytest.raises(TopologyError, match="map_async"):
        source(StreamBuilder("t")).map_async(function, "product string")


@pytest.mark.rule("txtopo.streams.async_calls", "Rules", 5)
def test_calls_below_a_committer_and_of_rows_that_are_taken_back_are_refused() -> None:
    builder = StreamBuilder("t")
    table = source(builder).as_table(open_state("memory:", table="last"), key="product")
    with pytest.raises(TopologyError, match="below a committer"):
        table.changes().map_async(price, "product string, cents long")
    with pytest.raises(TopologyError, match="when it is taken back"):
        table.changes(retracted=True).map_async(price, "product string, retracted boolean")


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_with_calls_are_right(seed: int) -> None:
    """Crashes, takeovers and replays that are cut again: see :mod:`call_programs`."""
    assert_promises_kept(judged_call_program(seed))
