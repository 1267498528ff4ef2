"""Rows of a state and single keys are looked up read only, within limits of rows and of time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.harness.web import ask
from tests.unit.ui.pages.literal import LiteralSource
from txtopo import (
    Config,
    Count,
    Fields,
    Page,
    PersistentAggregate,
    Sum,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.metadata import Json
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state import register_backend
from txtopo.state.backing_map import BackingMap
from txtopo.state.map_backend import backing_map_factory
from txtopo.ui.pages import api
from txtopo.ui.pages.events import event_of
from txtopo.ui.pages.server import PageServer

SEVEN, EIGHT = quote('["w007", 1]'), quote('["w007", 0]')
STATE = "/api/v1/topologies/words/states/count.count"


class Dictionary(BackingMap):
    """A map in this process."""

    kept: dict[str, str] = {}  # noqa: RUF012 - shared by all who open it

    def __init__(self, url: str) -> None:
        pass

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        return [self.kept.get(key) for key in keys]

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        self.kept.update(zip(keys, values, strict=True))


@contextmanager
def counted(url: str, rows: int = 250) -> Iterator[str]:
    """Count words of two columns in a state, and yield the page of the run."""
    spout = MemoryTransactionalSpout(
        {0: [[f"w{number:03}", number % 2] for number in range(rows)]},
        Fields("word string, half long"),
        100,
    )
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    count = PersistentAggregate(
        open_state(url), ["word", "half"], {"n": Count(), "sum": Sum("half")}
    )
    builder.set_bolt("count", count).fields_grouping("spout", "word", "half")
    config = Config(carrier="local", zookeeper="memory", page=Page(port=0))
    with builder.build_topology().start(config=config) as run:
        run.process_all_available()
        assert run.page_url is not None
        yield run.page_url


def test_the_first_rows_of_a_state_come_with_its_ledger(tmp_path: Path) -> None:
    with counted(f"sqlite:///{tmp_path}/words.db") as page:
        found = ask(page, STATE).json
        few = ask(page, f"{STATE}?limit=3").json
        cut = ask(page, f"{STATE}?limit=100000").json

    assert (found["ledger"]["txid"], found["ledger"]["topology"]) == (3, "words")
    assert found["key"] == [{"name": "word", "type": "string"}, {"name": "half", "type": "long"}]
    assert [len(each["rows"]) for each in (found, few, cut)] == [100, 3, 100]
    assert found["more"]
    assert found["rows"][0]["value"].keys() == {"n", "sum"}
    assert found["is_snapshot"]


def test_one_key_is_looked_up(tmp_path: Path) -> None:
    with counted(f"sqlite:///{tmp_path}/words.db") as page:
        found = ask(page, f"{STATE}?key={SEVEN}").json
        none = ask(page, f"{STATE}?key={EIGHT}").json
        wrong = [
            ask(page, f"{STATE}?key={quote(key)}")
            for key in (
                *("w007", '["w007"]', '["w007", "x"]', "[[]]", '["w007", 1, 2]', "[" * 9_000),
                f'["w007", {2**63}]',
            )
        ]
        html = ask(page, f"/topologies/words/states/count.count?key={SEVEN}")

    assert found["rows"] == [{"key": ["w007", 1], "value": {"n": 1, "sum": 1}}]
    assert (none["rows"], none["more"]) == ([], False)
    assert [each.status for each in wrong] == [400] * 7
    assert "expected word string, half long, or all of them" in wrong[0].json["error"]
    assert "w007" in html.text


def test_whole_numbers_that_a_browser_would_round_are_text(tmp_path: Path) -> None:
    exact, rounded = 2**53 - 1, 2**53 + 1
    rows = [[exact, -exact], [rounded, -rounded]]
    spout = MemoryTransactionalSpout({0: rows}, Fields("id long, n long"), 1)
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    count = PersistentAggregate(open_state(f"sqlite:///{tmp_path}/ids.db"), "id", {"n": Sum("n")})
    builder.set_bolt("count", count).fields_grouping("spout", "id")
    config = Config(carrier="local", zookeeper="memory", page=Page(port=0))
    with builder.build_topology().start(config=config) as run:
        run.process_all_available()
        assert run.page_url is not None
        found = ask(run.page_url, STATE).json["rows"]
        one = ask(run.page_url, f"{STATE}?key={rounded}").json["rows"]

    large = {"key": str(rounded), "value": str(-rounded)}
    assert one == [large]
    assert sorted(found, key=str) == sorted([{"key": exact, "value": -exact}, large], key=str)


def test_events_have_no_number_that_a_browser_would_round() -> None:
    changes: dict[str, Json] = {"version": 2, "plan": {"upto": [2**60, True, 1.5, "x", None]}}

    _, event = event_of(changes, 1)
    assert event is not None
    assert f'"upto": ["{2**60}", true, 1.5, "x", null]' in event.decode()


def test_a_map_without_snapshots_is_labelled_so() -> None:
    Dictionary.kept.clear()
    register_backend("dictionary", backing_map_factory(Dictionary))
    with counted("dictionary:", rows=5) as page:
        found = ask(page, STATE).json
        html = ask(page, "/topologies/words/states/count.count").text

    assert not found["is_snapshot"]
    assert len(found["rows"]) == 5
    assert "no snapshots" in html


def test_a_state_in_memory_is_read_in_its_process() -> None:
    with counted("memory:", rows=5) as page:
        assert len(ask(page, STATE).json["rows"]) == 5


def test_a_state_that_is_unknown_or_not_made_yet_is_not_found(tmp_path: Path) -> None:
    source = LiteralSource(url=f"sqlite:///{tmp_path}/none.db")
    with PageServer(source) as server:
        one = "/api/v1/topologies/payments/states"
        replies = [ask(server.url, f"{one}/{name}") for name in ("count.state", "count.stat")]

    assert [each.status for each in replies] == [404, 404]
    assert "has its topology run yet?" in replies[0].json["error"]
    assert "did you mean 'count.state'?" in replies[1].json["error"]


def test_a_store_that_hangs_is_answered_with_503_and_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "STATE_ROWS_S", 0.2)
    released = threading.Event()

    class Hanging(LiteralSource):
        def state(self, topology: str, name: str) -> Any:
            released.wait()
            raise AssertionError

    with PageServer(Hanging()) as server:
        one = "/api/v1/topologies/payments"
        replies = [ask(server.url, f"{one}/states/count.state") for _ in range(5)]
        others = [ask(server.url, path).status for path in (one, "/topologies", "/healthz")]
    released.set()

    assert [each.status for each in replies] == [503] * 5
    assert "no answer within 0.2 s" in replies[0].json["error"]
    assert "earlier requests are still wait" in replies[4].json["error"]
    assert others == [200] * 3
