"""A publisher hands out what no redo can change, in order, each row at least once."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.harness.dying import Died, RaisingScheduler, raise_died
from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, started
from txtopo import (
    Config,
    Count,
    Fields,
    PersistentAggregate,
    Topology,
    TransactionalTopologyBuilder,
)
from txtopo import outbox as module
from txtopo.bolts import Append
from txtopo.ensemble.memory import MemoryEnsemble, MemoryTransactionalState
from txtopo.ensemble.nodes import CURRENT
from txtopo.ensemble.published import published_after
from txtopo.ensemble.store import Json, Node, Put
from txtopo.errors import (
    ConfigError,
    CoordinatorUnavailable,
    FencedError,
    ForeignEnsembleError,
    StateUsageError,
    StoreBehindCoordinator,
    TxtopoError,
)
from txtopo.operations import Access, forget, rebuild, rewind
from txtopo.outbox import OutboxRow, Publisher
from txtopo.runtime.start import start_topology
from txtopo.spouts import OpaqueMemoryTransactionalSpout, Recut
from txtopo.state import State, open_state

ROWS = Fields("n long, text string")
BATCH = 3
Call = list[OutboxRow]
ONE_BY_ONE = replace(LOCAL, group_txids_max=1)


@dataclass
class Shop:
    """A topology with an outbox and a second state in another store, and its ensemble."""

    state: State
    other: State = field(default_factory=lambda: open_state("memory:"))
    ensemble: MemoryEnsemble = field(default_factory=MemoryEnsemble)
    config: Config = ONE_BY_ONE
    id: str = "shop"

    def topology(self, rows: int = 9, *script: Recut) -> Topology:
        made = [[n, f"row {n}"] for n in range(rows)]
        spout = OpaqueMemoryTransactionalSpout({0: made}, ROWS, BATCH, script)
        builder = TransactionalTopologyBuilder(self.id, "spout", spout)
        builder.set_bolt("outbox", Append(self.state, ROWS)).shuffle_grouping("spout")
        total = PersistentAggregate(self.other, (), Count())
        builder.set_bolt("total", total).global_grouping("spout")
        return builder.build_topology()

    def run(self, rows: int = 9, *script: Recut) -> None:
        with started(self.topology(rows, *script), self.config, self.ensemble) as run:
            run.process_all_available(LIMIT_S)

    def die(self, step: str, times: int) -> None:
        """Run until the driver dies at a durable step."""
        # It dies before it would have to ask the spout again.
        config = replace(self.config, poll_interval_s=LIMIT_S)
        scheduler = RaisingScheduler(step, times)
        graph = self.topology().graph
        run = start_topology(graph, None, config, scheduler=scheduler, ensemble=self.ensemble)
        with pytest.raises(TxtopoError, match="Died"):
            run.await_termination(LIMIT_S)

    def publisher(self, name: str = "mails") -> Publisher:
        outbox = self.state.named("outbox")
        return Publisher(open_state(outbox.url, table="outbox"), name, ZK, ensemble=self.ensemble)

    def publish(self, name: str = "mails") -> Call:
        """Publish what is ready with a new publisher, and return it."""
        rows: Call = []
        with self.publisher(name) as publisher:
            assert publisher.publish_ready(rows.extend) == len(rows)
        return rows

    def held(self) -> dict[tuple[int, int], dict[str, Any]]:
        """Return the rows of the state."""
        with self.state.named("outbox").reader() as reader:
            return dict(reader.items())

    @property
    def nodes(self) -> MemoryTransactionalState:
        return MemoryTransactionalState(self.id, self.ensemble)

    @property
    def access(self) -> Access:
        return Access(ensemble=self.ensemble)


ZK = Config(zookeeper="memory")


@pytest.fixture
def shop() -> Shop:
    return Shop(open_state("memory:"))


def contents(rows: Sequence[OutboxRow]) -> dict[tuple[int, int], dict[str, Any]]:
    """Return rows as a state has them; each key has one content, however often it came."""
    by_key: dict[str, OutboxRow] = {}
    for row in rows:
        assert by_key.setdefault(row.key, row) == row
    return {(row.txid, row.number): dict(row.values) for row in by_key.values()}


@pytest.mark.rule("txtopo.outbox", "Rules", 1)
@pytest.mark.parametrize("group", [1, 2])
def test_what_a_redo_cuts_in_another_way_is_not_published_before(shop: Shop, group: int) -> None:
    """The driver dies when the outbox alone has the txids that are not committed."""
    shop.config = replace(LOCAL, group_txids_max=group, max_spout_pending=3 * group)
    shop.die("write.after:outbox.outbox", 2)
    first_uncommitted = 1 + group
    assert {txid for txid, _ in shop.held()} > {*range(1, first_uncommitted)}

    rows = shop.publish()
    assert {row.txid for row in rows} == {*range(1, first_uncommitted)}
    shop.run(9, Recut(first_uncommitted, 0, 1))

    rows += shop.publish()
    assert contents(rows) == shop.held()
    assert len(rows) == 9
    assert sum(row.txid == first_uncommitted for row in rows) == 1


def test_the_last_rows_of_an_idle_topology_are_published(shop: Shop) -> None:
    shop.run()

    assert contents(shop.publish()) == shop.held()
    assert shop.publish() == []


@pytest.mark.parametrize(
    "store",
    [
        "sqlite",
        pytest.param("delta", marks=pytest.mark.integration),
        pytest.param("postgresql", marks=pytest.mark.service("postgresql")),
        pytest.param("redis", marks=pytest.mark.service("redis")),
    ],
)
def test_each_store_has_the_rows_of_a_range(
    store: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TXIDS_MAX", 2)
    if store == "postgresql":
        url = request.getfixturevalue(store).create_schema("outbox")
    elif store == "redis":
        url = request.getfixturevalue("redis_server").empty()
    else:
        url = f"{store}:///{tmp_path}/{store}"
    shop = Shop(open_state(url))
    shop.run()

    rows = shop.publish()

    assert [row.values["n"] for row in rows] == [*range(9)]
    assert contents(rows) == shop.held()


@pytest.mark.rule("txtopo.outbox", "Rules", 2)
def test_txids_are_published_in_order_and_whole(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TXIDS_MAX", 2)
    shop.run(20)
    calls: list[Call] = []

    with shop.publisher() as publisher:
        assert publisher.publish_ready(lambda rows: calls.append([*rows])) == 20
        assert publisher.published_up_to == 7

    txids = [[txid for txid, _ in groupby(call, lambda row: row.txid)] for call in calls]
    assert txids == [[1, 2], [3, 4], [5, 6], [7]]
    places = [(row.txid, row.number) for call in calls for row in call]
    assert places == sorted(shop.held())
    assert calls[0][0] == OutboxRow("shop/outbox/1/1", 1, 1, {"n": 0, "text": "row 0"})


@pytest.mark.rule("txtopo.outbox", "Rules", 3)
@pytest.mark.parametrize("dies", ["before", "half-way", "after"])
def test_a_publisher_that_dies_leaves_no_row_out(
    shop: Shop, dies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TXIDS_MAX", 2)
    shop.run(20)
    sent: Call = []

    def send(rows: Sequence[OutboxRow]) -> None:
        if rows[0].txid == 3:
            sent.extend({"before": [], "half-way": rows[:2]}.get(dies, rows))
            raise Died(dies)
        sent.extend(rows)

    with pytest.raises(Died), shop.publisher() as publisher:
        publisher.publish_ready(send)
    assert [(each.up_to, each.begun_up_to) for each in published_after(shop.nodes, 0)] == [(2, 4)]

    again = shop.publish()
    assert [row.txid for row in again[:1]] == [3]
    assert contents([*sent, *again]) == shop.held()


def test_a_function_that_raises_gets_the_same_rows_again(shop: Shop) -> None:
    shop.run()
    calls: list[Call] = []

    def send(rows: Sequence[OutboxRow]) -> None:
        calls.append([*rows])
        if len(calls) == 1:
            raise ConnectionError("the broker is down")

    with shop.publisher() as publisher:
        with pytest.raises(ConnectionError):
            publisher.publish_ready(send)
        assert publisher.published_up_to == 0
        assert publisher.publish_ready(send) == 9

    assert calls[0] == calls[1]


async def send_later(rows: Sequence[OutboxRow]) -> None:
    raise AssertionError("nobody awaits it")


def send_lazily(rows: Sequence[OutboxRow]) -> Iterator[OutboxRow]:
    yield from rows


@pytest.mark.parametrize("function", [send_later, send_lazily])
def test_a_function_that_returns_before_it_has_sent_anything_publishes_nothing(
    shop: Shop, function: Callable[[Sequence[OutboxRow]], object]
) -> None:
    shop.run()

    with (
        shop.publisher() as publisher,
        pytest.raises(StateUsageError, match="which has not sent anything yet"),
    ):
        publisher.publish_ready(function)

    assert len(shop.publish()) == 9


def test_a_function_may_empty_the_list_of_its_rows(shop: Shop) -> None:
    shop.run()

    with shop.publisher() as publisher:
        assert publisher.publish_ready(lambda rows: [*rows] and rows.clear()) == 9  # type: ignore[attr-defined]


@pytest.mark.rule("txtopo.outbox", "Rules", 4)
def test_nothing_is_begun_while_a_verb_is_unfinished(shop: Shop) -> None:
    shop.run()
    operation: dict[str, Json] = {"verb": "rewind", "arguments": {}}
    shop.nodes.apply([Put(CURRENT, {"current": 4, "operation": operation})])

    assert shop.publish() == []

    shop.nodes.apply([Put(CURRENT, {"current": 4})])
    assert len(shop.publish()) == 9


@pytest.mark.rule("txtopo.outbox", "Rules", 4)
def test_a_verb_that_begins_while_a_publisher_begins_comes_first(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run()

    with shop.publisher() as publisher:
        ensemble = publisher._open()._ensemble
        read: Callable[[str], Node | None] = ensemble.get

        def get(path: str) -> Node | None:
            node = read(path)
            monkeypatch.undo()
            shop.nodes.apply([Put(CURRENT, {"current": 4, "operation": {"verb": "rewind"}})])
            return node

        monkeypatch.setattr(ensemble, "get", get)
        assert publisher.publish_ready(lambda rows: None) == 0

    assert published_after(shop.nodes, 0) == []


@pytest.mark.rule("txtopo.outbox", "Rules", 5)
def test_a_second_process_with_the_name_replaces_the_first(shop: Shop) -> None:
    shop.run()
    sent: Call = []

    with shop.publisher() as first:

        def send(rows: Sequence[OutboxRow]) -> None:
            sent.extend(rows)
            sent.extend(shop.publish())

        with pytest.raises(FencedError, match=r"'mails' of state 'outbox.outbox' was replaced"):
            first.publish_ready(send)

    assert len(sent) == 18
    assert contents(sent) == shop.held()


def test_so_does_one_whose_node_has_the_same_version_by_chance(shop: Shop) -> None:
    """A publisher that hangs while the topology is forgotten, and begins again."""
    shop.run()
    with shop.publisher() as first:

        def send(rows: Sequence[OutboxRow]) -> None:
            nodes = shop.ensemble.nodes
            (path,) = (each for each in nodes if "/published/" in each)
            del nodes[path]  # what follows has the versions of before
            with shop.publisher() as second, pytest.raises(Died):
                second.publish_ready(lambda _: raise_died("it has begun"))

        with pytest.raises(FencedError):
            first.publish_ready(send)
    assert len(shop.publish()) == 9


@pytest.mark.rule("txtopo.outbox", "Rules", 5)
def test_a_write_whose_answer_is_lost_is_not_that_of_another(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run()
    sent: Call = []
    with shop.publisher() as publisher:
        apply = MemoryTransactionalState.apply

        def lost(state: MemoryTransactionalState, steps: Sequence[Any]) -> None:
            apply(state, steps)
            if any(getattr(each, "value", {}).get("published_up_to") for each in steps):
                monkeypatch.undo()
                raise CoordinatorUnavailable("the answer was lost")

        monkeypatch.setattr(MemoryTransactionalState, "apply", lost)
        with pytest.raises(CoordinatorUnavailable):
            publisher.publish_ready(sent.extend)
        assert publisher.publish_ready(sent.extend) == 0
        assert publisher.published_up_to == 3
    assert len(sent) == 9


def test_an_open_publisher_follows_a_rebuild(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    shop = Shop(open_state(url), open_state(url))
    shop.run(6)
    shutil.copy(tmp_path / "shop.db", tmp_path / "kept.db")
    shop.run()
    with shop.publisher() as publisher:
        assert publisher.publish_ready(lambda rows: None) == 9
        shutil.copy(tmp_path / "kept.db", tmp_path / "shop.db")
        rebuild(shop.topology(), shop.config, access=shop.access).apply()
        shop.run()
        assert publisher.publish_ready(lambda rows: None) == 3


def test_each_name_publishes_all_rows(shop: Shop) -> None:
    shop.run()

    assert shop.publish("mails") == shop.publish("a/ledger &c.")
    assert shop.publish("mails") == []


@pytest.mark.rule("txtopo.outbox", "Rules", 6)
def test_nothing_is_published_from_a_state_that_was_restored(tmp_path: Path) -> None:
    shop = Shop(open_state(f"sqlite:///{tmp_path}/shop.db"))
    shop.run(3)
    shutil.copy(tmp_path / "shop.db", tmp_path / "backup.db")
    shop.run(9)
    for path in tmp_path.glob("shop.db*"):
        path.unlink()
    shutil.copy(tmp_path / "backup.db", tmp_path / "shop.db")

    with pytest.raises(StoreBehindCoordinator, match=r"holds txid 1, .* that txid 3 is committed"):
        shop.publish()


def test_a_rewind_says_what_cannot_be_called_back(shop: Shop) -> None:
    shop.run()
    sent = shop.publish()
    with pytest.raises(Died), shop.publisher("ledger") as publisher:
        publisher.publish_ready(lambda rows: raise_died("send"))
    gone = {place for place in shop.held() if place[0] == 3}

    plan = rewind(shop.topology(), 2, shop.config, access=shop.access)

    text = "txid 3 of state 'outbox.outbox' cannot be recalled: publisher 'mails' has published"
    assert text in plan.steps[-1]
    assert "publisher 'ledger' has published" in plan.steps[-1]
    plan.apply()
    shop.run()
    again = shop.publish()
    # The records come again under new txids, and so with other keys.
    assert {row.txid for row in again} == {4}
    assert contents([*sent, *again]).keys() == shop.held().keys() | gone


def test_a_rewind_to_what_is_not_published_says_nothing(shop: Shop) -> None:
    shop.run(6)
    shop.publish()
    shop.run(9)

    plan = rewind(shop.topology(), 2, shop.config, access=shop.access)

    assert "called back" not in str(plan)


@pytest.mark.parametrize("last", [2, 3])
def test_published_rows_may_be_deleted_up_to_the_last_one(tmp_path: Path, last: int) -> None:
    shop = Shop(open_state(f"sqlite:///{tmp_path}/shop.db"))
    shop.run()
    shop.publish()
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as database:
        database.execute(f"DELETE FROM outbox WHERE batch <= {last}")

    rewind(shop.topology(), 2, shop.config, access=shop.access).apply()
    shop.run(12)

    assert {txid for txid, _ in shop.held()} == {4, 5}
    assert [row.values["n"] for row in shop.publish()] == [6, 7, 8, 9, 10, 11]


def test_a_rebuild_publishes_txids_again_that_it_uses_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    shop = Shop(open_state(url), open_state(url))
    shop.config = replace(ONE_BY_ONE, history_txids=5)
    shop.run(6)
    shutil.copy(tmp_path / "shop.db", tmp_path / "backup.db")
    shop.run(12)
    shop.publish()
    for path in tmp_path.glob("shop.db*"):
        path.unlink()
    shutil.copy(tmp_path / "backup.db", tmp_path / "shop.db")

    plan = rebuild(shop.topology(), shop.config, access=shop.access)
    assert "txids 3 to 4 of state 'outbox.outbox' cannot be recalled" in str(plan)
    plan.apply()

    shop.run(9)
    assert [row.values["n"] for row in shop.publish()] == [6, 7, 8]


def test_a_topology_that_is_forgotten_leaves_no_position(shop: Shop) -> None:
    shop.run()
    shop.publish()

    forget(shop.topology(), shop.config, access=shop.access).apply()

    assert {*shop.ensemble.nodes} <= {"/shop"}
    with pytest.raises(StateUsageError, match="no topology has claimed state 'outbox'"):
        shop.publish()


def other_ensemble(shop: Shop) -> None:
    shop.ensemble = MemoryEnsemble()


def another_one(shop: Shop) -> None:
    another = Shop(open_state("memory:"))
    another.run()
    shop.ensemble = another.ensemble


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (other_ensemble, StateUsageError, "the ensemble has no topology 'shop'"),
        (another_one, ForeignEnsembleError, "is not in this ensemble"),
    ],
)
def test_a_publisher_that_reads_another_ensemble_is_refused(
    shop: Shop, change: Callable[[Shop], None], error: type[Exception], text: str
) -> None:
    shop.run()
    change(shop)

    with pytest.raises(error, match=text):
        shop.publish()


def test_a_state_that_is_no_outbox_is_refused(shop: Shop) -> None:
    shop.run()
    total = open_state(shop.other.url, table="total")

    with (
        pytest.raises(StateUsageError, match=r"state 'total' is not an outbox; got the key Fields"),
        Publisher(total, "mails", ZK, ensemble=shop.ensemble),
    ):
        raise AssertionError("it opened")


def test_a_publisher_without_a_name_or_an_ensemble_is_refused(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="the name of a Publisher is wrong; got ''"):
        Publisher(shop.state, "", ZK, ensemble=shop.ensemble)
    with pytest.raises(
        ConfigError, match="zookeeper='memory' is lost when the process of a run ends"
    ):
        Publisher(shop.state, "mails", ZK)
    with pytest.raises(StateUsageError, match="use it in a with statement"):
        shop.publisher().publish_ready(lambda rows: None)
