"""Random programs with calls to a service, judged by the same program in plain Python.

The service is a function of the row, so that each attempt gets the same answers, whatever it asks
for together. Some calls fail once and are retried, some rows have no answer and become dead
letters, whose table is judged as well. Every attempt cuts its batches in another way.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any
from unittest.mock import patch
from zlib import crc32

from tests.unit.streams.plain import PlainBuilder, PlainStream
from tests.unit.streams.seeds import config_of
from tests.unit.streams.worlds import NAMES, RecuttingSpout, judged, memory_state, sales
from txtopo import Count, RecordFailed, StreamBuilder, Sum
from txtopo.streams import async_calls
from txtopo.testing.simulation.campaign import Verdict

ROWS = 20
FIELDS = "id string, shop string, amount long"
LETTERS = "dead_letters"
FIRST = "ask"
NO_ANSWER = "the service does not know it"

_asked: set[str] = set()


def judged_call_program(seed: int) -> Verdict:
    """Run the random program with calls of a seed under its faults, and judge it."""
    rows, spout = sales(ROWS, seed), RecuttingSpout(sales(ROWS, seed), 1 + seed % 5)
    builder = StreamBuilder("program", dead_letters=memory_state(LETTERS))
    program(seed, builder, builder.source("sales", spout, 1 + seed % 3), memory_state)
    with patch.object(async_calls, "FIRST_PAUSE_S", 0):
        return judged(
            builder.build_topology(),
            seed,
            lambda batches, _: tables(seed, batches),
            rows,
            config_of(seed),
        )


def tables(seed: int, batches: Sequence[Sequence[Sequence[Any]]]) -> dict[str, dict[Any, Any]]:
    """Return what each table holds after some batches, in plain Python."""
    builder = PlainBuilder()
    builder.tables[LETTERS] = {}
    program(seed, builder, builder.source("sales", NAMES), lambda name, **_: name)
    builder.run([{"sales": batch} for batch in batches])
    return builder.tables


def program(seed: int, builder: Any, stream: Any, state: Any) -> None:
    """Build the program of a seed on either builder."""
    chance = Random(seed)
    some, upper, again = (chance.random() < 0.5 for _ in range(3))
    if some:
        stream = stream.filter(lambda row: row["amount"] is not None)
    # A bolt has the id of its last operator.
    stream = asked(builder, stream, chance, "upper" if upper else FIRST)
    if upper:
        stream = stream.map(
            lambda row: [row["id"], row["shop"].upper(), row["amount"]], FIELDS, id="upper"
        )
    if again:
        stream = asked(builder, stream, chance, None)
    stream.store(state("kept"), key="id")
    stream.group_by("shop").persistent_aggregate(state("sums"), all=Sum("amount"), n=Count())


def asked(builder: Any, stream: Any, chance: Random, component: str | None) -> Any:
    """Replace the rows of a stream by answers; *component* makes dead letters of some."""
    limit, waits = chance.choice([1, 2, 100]), chance.random() < 0.7
    if isinstance(stream, PlainStream):
        return PlainStream(builder, lambda: answered(builder, stream, component))
    function = Price(unknown=component is not None, waits=waits)
    if component is None:
        return stream.map_async(function, FIELDS, limit=limit, retries=1, parallelism=2)
    return stream.map_async(function, FIELDS, limit=limit, retries=1, id=FIRST)


class Price:
    """The service."""

    def __init__(self, *, unknown: bool, waits: bool) -> None:
        self.unknown, self.waits = unknown, waits

    async def __call__(self, row: Any) -> list[Any]:
        number = crc32(f"{row['id']}{self.unknown}".encode())
        if self.waits:
            for _ in range(number % 4):  # later calls overtake this one
                await asyncio.sleep(0)
        if number % 3 == 0 and row["id"] not in _asked:
            _asked.add(row["id"])
            raise ConnectionError("away for a moment")
        _asked.discard(row["id"])
        answer = answer_to(dict(zip(row.fields.names, row.values, strict=True)), self.unknown)
        if answer is None:
            raise RecordFailed(NO_ANSWER)
        return answer


def answer_to(row: Mapping[str, Any], unknown: bool) -> list[Any] | None:
    """Return what the service answers; None if it has no answer."""
    number = crc32(f"{row['id']}/{row['shop']}".encode())
    if unknown and number % 5 == 0:
        return None
    return [row["id"], row["shop"], (row["amount"] or 0) * 2 + number % 7]


def answered(
    builder: PlainBuilder, stream: PlainStream, component: str | None
) -> list[dict[str, Any]]:
    """Return the answers to the rows of a batch, and keep the dead letters."""
    found, letters = [], []
    for row in stream.rows():
        answer = answer_to(row, component is not None)
        if answer is None:
            letters.append(json.dumps(row))
        else:
            found.append(dict(zip(NAMES, answer, strict=True)))
    for number, record in enumerate(sorted(letters), 1):
        builder.tables[LETTERS][builder.batch, number] = {
            "component": component,
            "error": "RecordFailed",
            "message": NO_ANSWER,
            "place": json.dumps({"operator": FIRST}),
            "record": record,
            "encoding": "json",
            "truncated": False,
        }
    return found
