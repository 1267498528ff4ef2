"""Delta tables that take further columns; ``EvolutionSuite`` has what all stores do."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from state_backends.delta.layout import DECLARATION
from tests.unit.state_backends.delta.tables import table_of
from txtopo import Fields
from txtopo.errors import FencedError, SchemaDrift
from txtopo.plugins.stores import Puts
from txtopo.state import Count, Max, State, Sum, open_state
from txtopo.testing.conformance.driver import StateDriver, claim_of

pytestmark = pytest.mark.integration

STEPS = ("change.claimed", "change.columns", "change.rows", "change.declared")


class Died(Exception):
    """Stands for the death of the process."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"delta:{tmp_path / 'states'}"


@pytest.fixture
def old(url: str) -> Iterator[StateDriver]:
    with closing(StateDriver(paid(url, "paid long"))) as store:
        store.puts(1, {"a": 1, "gone": 5})
        store.puts(2, {"a": 2, "b": 3, "gone": None})
        yield store


def paid(url: str, fields: str, **defaults: Any) -> State:
    return open_state(url, table="paid", value=Fields(fields), defaults=defaults or None)


def raise_at(step: str) -> Callable[[str], None]:
    def point(name: str) -> None:
        if name == step:
            raise Died(name)

    return point


def claim_and_die(state: State, epoch: int, step: str) -> None:
    backend = state.open()
    with closing(backend):
        backend.create()
        backend.point = raise_at(step)
        with pytest.raises(Died):
            backend.claim(changing(epoch))


def changing(epoch: int) -> Any:
    return replace(claim_of("topology", epoch), changes_table=True)


@pytest.mark.rule("state_backends.delta.evolution", "Order", 3)
@pytest.mark.parametrize("step", STEPS)
def test_a_claim_that_dies_is_repeated_whatever_the_next_program_says(
    url: str, old: StateDriver, step: str
) -> None:
    """Its default is another one, or NULL; or the program is the one of before."""
    claim_and_die(paid(url, "paid long, refunds long", refunds=7), 2, step)
    if step == "change.declared":
        with closing(StateDriver(paid(url, "paid long, refunds long", refunds=9), 3)) as store:
            assert store.contents()["b"] == {"paid": 3, "refunds": 7}, "it was declared"
        return
    for epoch, default in ((3, 8), (4, None)):
        state = paid(url, "paid long, refunds long", refunds=default)
        if default is not None:
            claim_and_die(state, epoch, "change.rows")
            continue
        with closing(StateDriver(state, epoch, changes_table=True)) as store:
            assert store.ledger.txid == 2
            assert store.contents() == {
                "a": {"paid": 2, "refunds": None},
                "b": {"paid": 3, "refunds": None},
            }


@pytest.mark.rule("state_backends.delta.evolution", "Order", 1)
@pytest.mark.parametrize("step", STEPS[:3])
def test_a_claim_that_was_overtaken_changes_nothing_more(
    url: str, old: StateDriver, step: str
) -> None:
    first, second = (paid(url, "paid long, refunds long", refunds=n) for n in (7, 8))
    backend = first.open()
    taken: list[StateDriver] = []

    def overtake(name: str) -> None:
        if name == step and not taken:
            taken.append(StateDriver(second, 3, changes_table=True))

    with closing(backend):
        backend.create()
        backend.point = overtake
        with pytest.raises(FencedError):
            backend.claim(changing(2))
    (store,) = taken
    with closing(store):
        store.commit(3, _both({"b": (30, 1)}))
        assert store.contents() == {
            "a": {"paid": 2, "refunds": 8},
            "b": {"paid": 30, "refunds": 1},
        }


def _both(rows: dict[str, tuple[Any, ...]]) -> Any:
    return Puts({(key,): values for key, values in rows.items()})


def test_an_undo_of_a_batch_before_the_change_leaves_the_default(
    url: str, old: StateDriver
) -> None:
    state = paid(url, "paid long, refunds long", refunds=7)
    with closing(StateDriver(state, 2, changes_table=True)) as store:
        store.commit(2, _both({"c": (1, 2)}))

        assert store.contents() == {
            "a": {"paid": 1, "refunds": 7},
            "gone": {"paid": 5, "refunds": 7},
            "c": {"paid": 1, "refunds": 2},
        }


def test_defaults_of_all_types_are_exact(url: str, old: StateDriver) -> None:
    fields = (
        "paid long, t string, d date, s timestamp, n timestamp_ntz, c decimal(38,2), "
        "x binary, y boolean, f double, b byte"
    )
    utc = datetime.UTC
    defaults: dict[str, Any] = {
        "t": 'it\'s "so" \\ ü',
        "d": datetime.date(1, 1, 1),
        "s": datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=utc),
        "n": datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
        "c": Decimal("123456789012345678901234567890123456.78"),
        "x": b"\x00\xff'",
        "y": True,
        "f": float("inf"),
        "b": -128,
    }
    state = paid(url, fields, **defaults)

    with closing(StateDriver(state, 2, changes_table=True)) as store:
        assert store.contents()["b"] == {"paid": 3, **defaults}


@pytest.mark.rule("state_backends.delta.evolution", "Order", 2)
def test_a_default_of_null_rewrites_no_file(url: str, old: StateDriver) -> None:
    before = set(table_of(old).file_uris())
    state = paid(url, "paid long, note string", note=None)

    with closing(StateDriver(state, 2, changes_table=True)) as store:
        assert set(table_of(store).file_uris()) == before
        assert store.contents()["b"] == {"paid": 3, "note": None}


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_a_log_takes_an_aggregate_that_begins_with_no_rows(url: str, kind: Any) -> None:
    def log(values: str, *aggregates: Any) -> State:
        state = open_state(url, kind, "sums", mode="log")
        return state.with_columns(Fields("key string"), Fields(values), aggregates)

    with closing(StateDriver(log("n long", Count()))) as store:
        for txid in (1, 2):
            store.merge(txid, [("a", 1), ("b", 1)])
    state = log("n long, total long, most double", Count(), Sum("x"), Max("y"))
    with closing(StateDriver(state, 2, changes_table=True)) as store:
        assert store.contents()["a"] == {"n": 2, "total": None, "most": None}
        store.merge(3, [("a", 1, 10, 0.5)])
        assert store.contents() == {
            "a": {"n": 3, "total": 10, "most": 0.5},
            "b": {"n": 2, "total": None, "most": None},
        }
        if kind == "opaque":
            store.merge(3, [("b", 1, 5, 1.5)], attempt=1)
            assert store.contents()["b"] == {"n": 3, "total": 5, "most": 1.5}


def test_what_a_delta_table_does_not_take_is_refused(url: str, old: StateDriver) -> None:
    version = table_of(old).version()
    with pytest.raises(SchemaDrift, match=r"cannot remove a column from its rows \('paid'\)"):
        StateDriver(paid(url, "refunds long", refunds=7), 2, changes_table=True)
    assert table_of(old).version() == version


def test_a_table_that_was_changed_by_hand_is_still_noticed(url: str, old: StateDriver) -> None:
    from deltalake import Field as DeltaField
    from deltalake.schema import PrimitiveType

    table_of(old).alter.add_columns([DeltaField("stray", PrimitiveType("long"))])
    for state in (paid(url, "paid long"), paid(url, "paid long, refunds long", refunds=1)):
        with pytest.raises(SchemaDrift, match="does not have the columns that the state declares"):
            StateDriver(state, 2, changes_table=True)


def test_a_reader_of_an_earlier_txid_finds_null(url: str, old: StateDriver) -> None:
    state = paid(url, "paid long, refunds long", refunds=7)
    with closing(StateDriver(state, 2, changes_table=True)) as store:
        store.commit(3, _both({"a": (9, 9)}))
        with store.backend.snapshot_of(1) as snapshot:
            found = {key: row.current for key, row in snapshot.items()}
        assert found == {("a",): (1, None), ("gone",): (5, None)}
        with store.backend.snapshot_of(2) as snapshot:
            kept = {key: row.current for key, row in snapshot.items() if not row.deleted}
        assert kept == {("a",): (2, 7), ("b",): (3, 7)}
        assert DECLARATION in table_of(store).metadata().configuration
