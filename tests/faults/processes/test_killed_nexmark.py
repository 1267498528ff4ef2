"""A driver that computes a query of NEXMark is killed; a reader sees what pandas finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import uuid4

import pytest

from examples.nexmark.queries import QUERIES
from tests.faults.processes.nexmark_process import EVENTS_A_TXID, GENERATOR, TXIDS, program
from tests.faults.processes.stores import FIXTURES, SERVERS, marks_of, new_url
from tests.harness.nexmark import SEEN, Events, Table, held, of_all_times, tables_of
from tests.harness.processes import Child
from tests.harness.servers.zookeeper import ZooKeeperProcess
from txtopo.errors import StateUsageError
from txtopo.state import StateReader, open_state, read_together

pytestmark = [pytest.mark.kills, pytest.mark.timeout(900)]
WRITING = ("rows.after:{}", "write.before:{}")
"""Steps in the transaction of a state, which is what ``{}`` stands for."""
WRITTEN = ("write.after:{}", "advance.before")
"""A state has a txid, and ZooKeeper does not know that it is committed."""
BEFORE = ("store-metadata.after", "process.after", "rows.before:{}")
"""A txid is planned or computed, and not written."""
BETWEEN = ("advance.after", "cleanup.before", "plan.after")
"""A txid is committed."""
TAKEOVER = ("claim.claimed:{}",)


class Death(NamedTuple):
    """How a driver lives until it is killed.

    Attributes:
        step: The durable step at which it is killed.
        times: How often it has reached the step by then.
        group: The most txids that it commits at a time.
    """

    step: str
    times: int
    group: int


def deaths(states: Sequence[str], chance: Random) -> Iterator[Death]:
    """Yield three deaths of different sorts, in any order."""
    sorts = [WRITING, WRITTEN, chance.choice((BEFORE, BETWEEN, TAKEOVER))]
    for steps in chance.sample(sorts, len(sorts)):
        step = chance.choice(steps).format(chance.choice(states))
        # The driver may plan and compute what is left at once.
        times = chance.randint(1, 3) if steps in (WRITING, WRITTEN) else 1
        yield Death(step, times, chance.choice((1, 2)))


@cache
def expected(table: str, txid: int) -> Table:
    """Return what a table must hold after a txid."""
    return SEEN[table](events_until(txid)) if txid else {}


@cache
def events_until(txid: int) -> Events:
    """Return the events of all txids up to this one."""
    return Events.made_by(GENERATOR, txid * EVENTS_A_TXID)


@dataclass(slots=True)
class KilledQuery:
    """A query whose driver is killed, and the outside reader of its tables.

    Attributes:
        query: The query.
        url: The store.
        zookeeper: Where its coordination is.
        apart: Whether each state has transactions of its own.
        states: Its states, by component and name.
        txids: The txids that were seen of each table.
    """

    query: str
    url: str
    zookeeper: str
    apart: bool
    states: list[str] = field(init=False)
    txids: dict[str, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        tables = tables_of(program(self.query, self.url))
        self.states = list(tables)
        self.txids = {table: [0] for table in tables.values() if table in SEEN}

    def start(self, *more: str) -> Child:
        """Start a driver."""
        module = "tests.faults.processes.nexmark_process"
        apart = ["--apart"] * self.apart
        return Child(module, self.query, self.url, self.zookeeper, *apart, *more, held=True)

    def die(self, death: Death) -> None:
        """Start a driver, and kill it at a step."""
        stop = f"{death.step}:{death.times}"
        with self.start("--stop-at", stop, "--group", str(death.group)) as child:
            self.follow(child, "stopped")
            self.look()
            child.kill()
        self.look()

    def finish(self) -> None:
        """Start a driver, and let it process all events."""
        with self.start() as child:
            self.follow(child, "done")
            child.finish()
        self.look()

    def follow(self, child: Child, event: str) -> None:
        """Read the tables whenever a driver says something, until it says *event*.

        After a commit the driver waits until they are read. They are read once more while it
        continues.
        """
        while (said := child.next_event()) is not None and said["event"] != event:
            assert said["event"] != "failed", child.story()
            self.look()
            if said["event"] == "committed":
                assert {txids[-1] for txids in self.txids.values()} == {said["txid"]}
                child.allow(1)
                self.look()
        assert said is not None, child.story()

    def look(self) -> None:
        """Read those tables that are there: at one instant, if they are written in one."""
        states = [open_state(self.url, table=table) for table in self.txids]
        if self.apart or len(states) == 1:
            for state in states:
                with suppress(StateUsageError), state.reader() as reader:
                    self._judge(reader)
        else:
            with suppress(StateUsageError), read_together(*states) as readers:
                for reader in readers:
                    self._judge(reader)

    def _judge(self, reader: StateReader) -> None:
        """Compare a table with pandas over the events up to its txid."""
        table, found = reader.table.name, held(reader)
        if table == "q12":
            found = of_all_times(found)
        txid, seen = reader.ledger.txid if reader.ledger else 0, self.txids[table]
        assert found == expected(table, txid), f"{table} is not what txid {txid} makes of it"
        assert txid >= seen[-1], f"{table} went back from {seen[-1]} to {txid}"
        seen.append(txid)


def _parameters() -> Iterator[object]:
    for number, query in enumerate(QUERIES):
        for store, apart in (("sqlite", number % 2 == 0), ("postgresql", number % 2 == 1)):
            name = f"{query}-{store}-{'apart' if apart else 'together'}"
            yield pytest.param(query, store, apart, marks=marks_of(store), id=name)


@pytest.mark.slow
@pytest.mark.parametrize(("query", "store", "apart"), list(_parameters()))
def test_a_reader_sees_after_each_txid_what_pandas_finds(
    query: str,
    store: str,
    apart: bool,
    zookeeper: ZooKeeperProcess,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    url = f"sqlite:///{tmp_path / 'nexmark.db'}"
    if store in SERVERS:
        url = new_url(request.getfixturevalue(FIXTURES[store]))
    killed = KilledQuery(query, url, f"{zookeeper.hosts}/{uuid4().hex}", apart)

    for death in deaths(killed.states, Random(f"{query} {store}")):
        killed.die(death)
    killed.finish()

    assert {txids[-1] for txids in killed.txids.values()} == {TXIDS}
    assert expected(query, TXIDS)
