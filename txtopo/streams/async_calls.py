"""map_async: replaces each row by what a call outside answers, with many calls at a time.

Rules
-----
1. A task makes at most ``limit`` calls at a time. The rows keep their order, whichever call answers
   first.
2. A call fails if the function raises, or has not answered within ``timeout``. It is made again up
   to ``retries`` times, after a pause that doubles.
3. A row whose last call failed fails the batch: the other calls are stopped, and the attempt is
   done again as after any ``FailedException``. Or the row becomes a dead letter, if the function
   raised ``RecordFailed``, which is not tried again, or one of the exceptions that
   ``dead_letters_on`` lists.
4. The answers are part of the content of the batch (:mod:`txtopo.stages.replays`), each with the
   row that it is for, and so are the rows that became dead letters. So a replay that is answered
   in another way is told, unless a spout above is opaque, whose replays may differ.
5. The calls are made in the processing phase, where many batches are at a time; below a committer
   they would hold up all later commits, and are refused. So is a stream of which rows are taken
   back: a row would be taken back with another answer than it counted with.
6. Calls of an attempt that was abandoned are stopped: the carrier in this process says so, and
   Spark ends the worker.

A function that is not ``async`` is called on threads, at most ``limit`` at a time. A thread cannot
be stopped: a call that was given up goes on until it returns, beside the limit.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.builders.declarer import check_listed
from txtopo.collector import ArrowOutputCollector
from txtopo.context import TaskContext
from txtopo.durations import Duration, duration
from txtopo.errors import (
    FailedException,
    RecordFailed,
    RunLostError,
    TopologyError,
    TxtopoError,
)
from txtopo.log_records import one_line
from txtopo.metadata import Json
from txtopo.stages.replays import AnswersDigest
from txtopo.state.columns import rows_of
from txtopo.streams.calls_loop import calls_loop
from txtopo.streams.checks import check_function, declared_fields, is_coroutine_function
from txtopo.streams.operators import Operator, batches_of
from txtopo.tuples import Fields, Tuple

if TYPE_CHECKING:
    from txtopo.streams.stream import DataStream

LIMIT = 100
"""Calls of a task at a time, if the user says nothing: Flink's default, and few for one server."""

TIMEOUT = "30 seconds"

FIRST_PAUSE_S = 0.1
PAUSE_S_MAX = 10.0

# How soon calls stop after their attempt was abandoned.
LOOK_S = 0.1

ROW_CHARACTERS_MAX = 300


@dataclass(frozen=True, slots=True)
class CallRules:
    """How calls are made.

    Attributes:
        limit: The most calls of a task at a time.
        timeout_s: How long one may take; None for as long as it wants.
        retries: How often one that failed is made again.
        errors: The exceptions that make a dead letter of the row, beside ``RecordFailed``.
    """

    limit: int
    timeout_s: float | None
    retries: int
    errors: tuple[type[Exception], ...]


def map_async(
    stream: DataStream,
    function: Callable[[Tuple], object],
    fields: str | Fields,
    limit: int,
    timeout: Duration | None,
    retries: int,
    dead_letters_on: Sequence[type[Exception]] | type[Exception],
    id: str | None,
    parallelism: int | None,
) -> DataStream:
    """Return the stream of answers; see :meth:`DataStream.map_async`."""
    stream._check_not_retracted("map_async")
    if any(port.node.committing for port in stream.ports):
        raise TopologyError(
            f"map_async makes calls in the processing phase only; got {stream.name!r}, which is "
            "below a committer, so each call would delay all later commits; expected a stream "
            "above the tables; call the service there, and join or store its answers",
            stream=stream.name,
        )
    check_function("map_async", function, "row", may_await=True)
    declared = declared_fields("map_async", fields)
    given = dead_letters_on
    listed = tuple(given) if isinstance(given, Sequence) else (given,)
    for error in listed:
        check_listed("map_async", error)
    if listed and not stream.draft.takes_dead_letters:
        raise TopologyError(
            "map_async has dead_letters_on, but the topology has nowhere to put dead letters; "
            "expected StreamBuilder(…, dead_letters=open_state(…))",
            name="map_async",
            setting="dead_letters_on",
        )
    calls = CallRules(
        _whole("limit", limit, 1),
        None if timeout is None else duration("timeout of map_async", timeout).total_seconds(),
        _whole("retries", retries, 0),
        listed,
    )
    return stream._stateless(MapAsync, declared, function, id, parallelism, calls)


def _whole(setting: str, given: object, least: int) -> int:
    if type(given) is not int or given < least:
        raise TopologyError(
            f"{setting} of map_async is wrong; got {given!r:.100}; expected a whole number of at "
            f"least {least}",
            name="map_async",
            setting=setting,
            got=f"{given!r:.100}",
        )
    return given


@dataclass(frozen=True, slots=True)
class _SetAside:
    """What is known of a row instead of an answer: why it becomes a dead letter."""

    error: Exception


@dataclass(frozen=True)
class MapAsync(Operator):
    """Returns one row for each row: what a call answers.

    Attributes:
        calls: How calls are made.
        context: What the task is told, once the operator is bound to a batch.
        collector: Takes the dead letters of the batch.
        digest: The answers of the batch so far.
    """

    calls: CallRules
    context: TaskContext | None = None
    collector: ArrowOutputCollector | None = None
    digest: AnswersDigest = field(default_factory=AnswersDigest, repr=False)
    word = "map_async"
    asks_outside = True

    def bound(self, context: TaskContext, collector: ArrowOutputCollector) -> MapAsync:
        """Return this operator for a batch."""
        return replace(self, context=context, collector=collector, digest=AnswersDigest())

    @property
    def content(self) -> Json:
        """What a replay of the task is compared by."""
        return self.digest.content

    def apply(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[pa.RecordBatch]:
        """Call the function with each row, wait for all answers, and return them in order."""
        rows = list(self.rows(batch, attempt))
        answers = self._finished(self._all(rows))
        asked: list[Tuple] = []
        for row, answer in zip(rows, answers, strict=True):
            if isinstance(answer, _SetAside):
                assert self.collector is not None
                self.collector.set_aside(answer.error, {"operator": self.id}, row)
                self.digest.add(row.values, None)
            else:
                asked.append(row)
        given = [answer for answer in answers if not isinstance(answer, _SetAside)]
        start = 0
        for part in batches_of(self.id, self.fields, given):
            # As the columns have them: 1 and 1.0 are the same double.
            for row, values in zip(
                asked[start : start + part.num_rows], rows_of(part), strict=True
            ):
                self.digest.add(row.values, values)
            start += part.num_rows
            yield part

    def _finished(self, calls: Coroutine[None, None, list[object]]) -> list[object]:
        """Wait for calls, and stop them if nobody wants their answers any more."""
        running = asyncio.run_coroutine_threadsafe(calls, calls_loop())
        try:
            while not wait([running], LOOK_S).done:
                if self.context is not None and self.context.abandoned():
                    raise RunLostError("the attempt was abandoned", counted=False, cancelled=True)
            return running.result()
        finally:
            running.cancel()

    async def _all(self, rows: Sequence[Tuple]) -> list[object]:
        """Return the answers of all rows; the first failure stops the other calls."""
        answers: list[object] = [None] * len(rows)
        waiting = iter(enumerate(rows))

        async def work() -> None:
            for at, row in waiting:
                answers[at] = await self._answer(row)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.calls.limit, len(rows))):
                    group.create_task(work())
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed.exceptions[0].__cause__
        return answers

    async def _answer(self, row: Tuple) -> object:
        """Return what the function answers for a row, after as many tries as it may have."""
        tried = 0
        while True:
            if _being_stopped():  # a function that caught that has gone on
                raise asyncio.CancelledError
            try:
                async with asyncio.timeout(self.calls.timeout_s):
                    return await self._called(row)
            except RecordFailed as error:
                return self._set_aside(error)
            except asyncio.CancelledError as error:
                if _being_stopped():
                    raise  # nobody wants the answer; else the function was cancelled by its own
                failure: BaseException = error
            except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - user code
                failure = error
            tried += 1
            if tried > self.calls.retries:
                break
            await asyncio.sleep(min(FIRST_PAUSE_S * 2 ** (tried - 1), PAUSE_S_MAX))
        if isinstance(failure, self.calls.errors) and not isinstance(failure, TxtopoError):
            return self._set_aside(failure)
        raise self._failure(failure, row, tried)

    async def _called(self, row: Tuple) -> object:
        if is_coroutine_function(self.function):
            return await self.function(row)
        answer = await _on_a_thread(self.function, row)
        return await answer if inspect.isawaitable(answer) else answer

    def _set_aside(self, error: Exception) -> _SetAside:
        if self.collector is None or not self.collector.takes_dead_letters:
            raise error
        return _SetAside(error)

    def _failure(self, error: BaseException, row: Tuple, tried: int) -> Exception:
        """Return the error of a row for which no call has answered."""
        shown = f"{dict(zip(self.inputs.names, row.values, strict=True))!r}"
        if isinstance(error, TxtopoError):
            error.add_note(f"for the row {shown:.{ROW_CHARACTERS_MAX}}")
            return error
        what = one_line(error)
        if isinstance(error, TimeoutError) and not str(error):
            what = f"no answer within {self.calls.timeout_s:g} s"
        failed = FailedException(
            f"a call of {self.id!r} failed; got {what}; for the row "
            f"{shown:.{ROW_CHARACTERS_MAX}}; tries: {tried}; look at the service, allow more "
            "time or retries, or list the exception in dead_letters_on",
            component=self.id,
            tries=tried,
        )
        failed.__cause__ = error
        return failed


def _being_stopped() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _on_a_thread(function: Callable[[Tuple], object], row: Tuple) -> object:
    """Call a function on a thread of its own, which ends with the process."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[tuple[object, BaseException | None]] = loop.create_future()

    def tell(answer: object, error: BaseException | None) -> None:
        if not answered.done():  # else the call was given up
            # An error is part of the result: a future does not take every exception.
            answered.set_result((answer, error))

    def call() -> None:
        answer, failure = None, None
        try:
            answer = function(row)
        except BaseException as error:  # noqa: BLE001 - it is raised where the call is awaited
            failure = error
        loop.call_soon_threadsafe(tell, answer, failure)

    # Not of a pool: a call that never returns would keep the process from ending.
    threading.Thread(target=call, daemon=True).start()  # noqa: TID251 - waited for, in every world
    answer, error = await answered
    if error is not None:
        raise error
    return answer
