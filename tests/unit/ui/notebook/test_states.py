"""A state as HTML: its ledger and first rows, or what is wrong with it; its store may hang."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S
from tests.unit.state.backing_maps import STORES, DictMap
from txtopo import (
    Config,
    Count,
    Fields,
    Mean,
    PersistentAggregate,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.plugins.stores import backing_map_factory, register_backend
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state.registry import State
from txtopo.testing.conformance.driver import StateDriver, putting
from txtopo.ui.notebook import states

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a store on a busy machine take the time of a test."""
    monkeypatch.setattr(states, "LIMIT_S", LIMIT_S)


def written(url: str, *words: str, **aggregates: Any) -> State:
    """Let a topology count words, and return the state."""
    spout = MemoryTransactionalSpout({0: [[w, i] for i, w in enumerate(words)]}, FIELDS, 100)
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    state = open_state(url, table="counts")
    count = PersistentAggregate(state, "word", aggregates or {"n": Count()})
    builder.set_bolt("counts", count).fields_grouping("spout", "word")
    with builder.build_topology().start(config=Config(carrier="local", zookeeper="memory")) as run:
        run.process_all_available(120)
    return state


FIELDS = Fields("word string, size long")


def test_a_state_shows_its_ledger_and_its_first_ten_rows(tmp_path: Path) -> None:
    words = [f"word-{number}" for number in range(50)]
    shown = written(f"sqlite:///{tmp_path}/words.db", *words)._repr_html_()

    assert "state counts" in shown
    assert ">words</td>" in shown
    assert shown.count(">word-") == 10
    assert "there are more" in shown
    assert "no snapshots" not in shown


def test_several_values_have_a_column_each(tmp_path: Path) -> None:
    state = written(f"sqlite:///{tmp_path}/w.db", "a", "a", mean=Mean("size"), n=Count())
    shown = state._repr_html_()

    assert ">mean</th>" in shown
    assert ">0.5</td>" in shown
    assert "there are more" not in shown


def test_a_state_that_keeps_keys_alone_shows_its_keys(tmp_path: Path) -> None:
    state = open_state(f"sqlite:///{tmp_path}/k.db", table="keys", value=Fields())
    driver = StateDriver(state)
    driver.run(1, putting({"a": True}))
    driver.close()
    shown = state._repr_html_()

    assert ">a</td>" in shown
    assert "True" not in shown


def test_keys_are_text(tmp_path: Path) -> None:
    shown = written(f"sqlite:///{tmp_path}/words.db", HOSTILE)._repr_html_()

    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown


def test_an_open_reader_shows_what_it_sees(tmp_path: Path) -> None:
    state = written(f"sqlite:///{tmp_path}/words.db", "a")
    with state.reader() as reader:
        assert ">a</td>" in reader._repr_html_()


def test_a_map_without_snapshots_says_so() -> None:
    register_backend("shown-map", backing_map_factory(lambda url: DictMap(STORES[url])))
    shown = written("shown-map:one", "a")._repr_html_()

    assert "no snapshots: rows may be of different txids" in shown


def test_a_state_that_is_not_there_says_so_and_makes_nothing(tmp_path: Path) -> None:
    shown = open_state(f"sqlite:///{tmp_path}/none.db", table="counts")._repr_html_()

    assert "the store holds no state" in shown
    assert not list(tmp_path.iterdir())


def test_a_store_that_is_away_says_so_without_its_password() -> None:
    shown = open_state("postgresql://me:secret@127.0.0.1:1/words", table="c")._repr_html_()

    assert "StoreUnavailable" in shown
    assert "secret" not in shown


def test_a_store_that_hangs_does_not_hang_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def hanging(url: str, table: Any) -> Any:
        go_on.wait()
        raise ConnectionError("too late")

    register_backend("hanging", hanging)
    monkeypatch.setattr(states, "LIMIT_S", 0.05)
    try:
        shown = open_state("hanging:store")._repr_html_()
    finally:
        go_on.set()

    assert "its store did not answer" in shown


def test_a_topology_that_is_built_shows_its_url_without_credentials() -> None:
    state = open_state("memory:", table="counts")

    assert state.shown_url == "memory:"
    assert open_state("postgresql://a:b@c/d").shown_url == "postgresql://a:***@c/d"
