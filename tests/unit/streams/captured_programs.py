"""Random logs of a captured table under the simulator, compared with a plain table.

The history of a table is drawn: inserts, updates, deletes, truncates, and now and then another
server, which begins with a snapshot of what is there. Its events are shuffled within bounds, and
some are repeated. Each attempt cuts them into batches in its own way.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.unit.streams.captured import PlainTable
from tests.unit.streams.seeds import config_of
from tests.unit.streams.worlds import RecuttingSpout, judged, memory_state, planned_time
from txtopo import Count, StreamBuilder, Sum
from txtopo.testing.simulation.campaign import Verdict

EVENT = "id string, key string, shop string, amount long, op string, at string, line string"
EVENTS = 24
TABLES = ("key", "shop")


@dataclass(frozen=True)
class Log:
    """A drawn log.

    Attributes:
        ordered: Whether its events have positions; otherwise they arrive in order.
        expire_after: How long deletes are remembered; None for ever.
        partitions: How many partitions it has.
        events: The events: the fields of ``EVENT``, of which ``id`` is unlike in repeated events.
    """

    ordered: bool
    expire_after: datetime.timedelta | None
    partitions: int
    events: Sequence[Sequence[Any]]


def random_log(seed: int) -> Log:
    """Draw a log."""
    chance = Random(f"captured/{seed}")
    ordered = chance.random() < 0.8
    events = [*_history(chance, timelines=1 + (seed % 3 == 0))]
    if ordered:
        far = chance.choice([1, 4, 12])
        places = [number + chance.uniform(0, far) for number in range(len(events))]
        again = chance.sample(range(len(events)), len(events) // 4)
        placed = [*enumerate(events), *((number, events[number]) for number in again)]
        places += [number + chance.uniform(0, 2 * far) for number in again]
        order = sorted(range(len(placed)), key=lambda at: (placed[at][1][-1], places[at]))
        events = [placed[at][1] for at in order]
    expires = datetime.timedelta(seconds=chance.choice([1, 60])) if chance.random() < 0.3 else None
    return Log(
        ordered,
        expires if ordered else None,
        1 + (ordered and chance.random() < 0.5),
        [[f"e{number:03}", *event] for number, event in enumerate(events)],
    )


def _history(chance: Random, timelines: int) -> list[list[Any]]:
    """Return the events of a table: key, shop, amount, operation, position and timeline."""
    rows: dict[str, list[Any]] = {}
    events: list[list[Any]] = []
    for line in "xy"[:timelines]:
        events += [[key, *row, "r", "0000", line] for key, row in sorted(rows.items())]
        if line > "x":
            # What the former server had and did not pass on is not in the snapshot.
            for key in sorted(rows)[:1]:
                events = [each for each in events if each[0] != key or each[-1] != line]
                del rows[key]
        for at in range(1, 1 + EVENTS // timelines):
            key = f"k{chance.randrange(4)}"
            if chance.random() < 0.05:
                rows.clear()
                events.append([None, None, None, "t", f"{at:04}", line])
            elif key in rows and chance.random() < 0.35:
                del rows[key]
                events.append([key, None, None, "d", f"{at:04}", line])
            else:
                op = "u" if key in rows else "c"
                rows[key] = [chance.choice("abc"), chance.choice([None, 1, 2, 3])]
                events.append([key, *rows[key], op, f"{at:04}", line])
    return events


def judged_log(seed: int) -> Verdict:
    """Run the program over the log of a seed under its faults, and judge it after each txid."""
    log = random_log(seed)
    spout = RecuttingSpout(log.events, 1 + seed % 6, log.partitions, EVENT)
    builder = StreamBuilder("program")
    declared: dict[str, Any] = {"position": "at"} if log.ordered else {}
    if log.expire_after is not None:
        declared["expire_after"] = log.expire_after
    rows = builder.source("log", spout).as_changes(
        memory_state("captured"),
        "key",
        ["shop", "amount"],
        timeline="line",
        on_truncate="clear",
        on_new_timeline="snapshot",
        **declared,
    )
    # It refuses what is taken back without having been put, and a second row of a key.
    rows.as_table(memory_state("replica"), "key")
    rows = rows.with_columns(lambda row: [row["amount"] or 0], "pieces long")
    for table in TABLES:
        rows.group_by(table).persistent_aggregate(
            memory_state(table), n=Count(), known=Count("amount"), pieces=Sum("pieces")
        )

    def tables(
        batches: Sequence[Sequence[Sequence[Any]]], stamps: Mapping[int, Any]
    ) -> dict[str, dict[Any, Any]]:
        return plain_tables(log, batches, stamps)

    return judged(builder.build_topology(), seed, tables, log.events, config_of(seed))


def plain_tables(
    log: Log, batches: Sequence[Sequence[Sequence[Any]]], stamps: Mapping[int, Any]
) -> dict[str, dict[Any, Any]]:
    """Return what the aggregates have after some batches."""
    table = PlainTable(log.ordered)
    groups: dict[str, set[Any]] = {name: set() for name in TABLES}
    for txid, batch in enumerate(batches, 1):
        now = planned_time(stamps.get(txid))
        if log.expire_after is not None and now is not None:
            table.forget(now - log.expire_after)
        table.take([(at, op, key, (shop, n), line) for _, key, shop, n, op, at, line in batch], now)
        # A group that had a row stays, with nothing in it.
        for key, (shop, _) in table.rows().items():
            groups["shop"].add(shop)
            groups["key"].add(key)
    found: dict[str, dict[Any, Any]] = {}
    rows = [(key, *row) for key, row in table.rows().items()]
    found["replica"] = {key: {"shop": shop, "amount": amount} for key, shop, amount in rows}
    for at, name in enumerate(TABLES):
        found[name] = {}
        for group in groups[name]:
            amounts = [row[2] for row in rows if row[at] == group]
            known = [amount for amount in amounts if amount is not None]
            found[name][group] = {"n": len(amounts), "known": len(known), "pieces": sum(known)}
    return found
