"""Decimals that earlier versions kept as text in SQLite are read, and brought up once it writes."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from state_backends.sql.dialect import LEDGER_COLUMNS_2, SCALED_SCHEMA
from tests.services.upgrade import decimals
from txtopo.errors import SchemaDrift, SchemaVersionError, TopologyError
from txtopo.state import State, open_state
from txtopo.testing.conformance.driver import StateDriver
from txtopo.tuples import Fields

pytestmark = [pytest.mark.integration, pytest.mark.slow]
PRICES = {
    (Decimal("-3.5"), "a"): {"price": Decimal("-3.5000"), "n": Decimal(2)},
    (Decimal("0.0"), "a"): {"price": Decimal("0.0000"), "n": Decimal(4)},
    (Decimal("7.0"), "b"): {"price": None, "n": Decimal(-5)},
    (Decimal("9.1"), "a"): {"price": Decimal("-0.0001"), "n": None},
    (Decimal("91.0"), "a"): {"price": Decimal("91.0000"), "n": Decimal(3)},
}
"""After txid 2. Kept as tenths, 9.1 is the number 91."""
BEFORE = {
    **{key: value for key, value in PRICES.items() if key[1] == "a"},
    (Decimal("9.1"), "a"): {"price": Decimal("9.1000"), "n": Decimal(0)},
    (Decimal("10.2"), "a"): {"price": Decimal("10.2000"), "n": Decimal(1)},
}
"""After txid 1."""
each_schema = pytest.mark.parametrize("schema", decimals.SCHEMAS)


@pytest.fixture
def schema() -> int:
    return 2


@pytest.fixture
def database(schema: int, tmp_path: Path) -> Path:
    decimals.bring_back(schema, tmp_path / "states.db")
    return tmp_path / "states.db"


@pytest.fixture
def url(database: Path) -> str:
    return f"sqlite:///{database}"


@pytest.fixture
def plain(database: Path) -> Iterator[sqlite3.Connection]:
    """Anybody who uses SQL."""
    connection = sqlite3.connect(database, isolation_level=None)
    yield connection
    connection.close()


def read(state: State) -> dict[Any, Any]:
    with open_state(state.url, table=state.table).reader() as reader:
        found = dict(reader.items())
        assert {key: reader.get(key) for key in found} == found
        return found


@each_schema
def test_a_reader_finds_what_was_written(url: str) -> None:
    assert read(decimals.prices(url)) == PRICES
    assert read(decimals.kept(url)) == {"a": Decimal("9.00"), "b": Decimal("-9.10")}
    assert read(decimals.means(url)) == {
        "a": {"cost": Decimal("2.4925"), "most": Decimal("10.10")},
        "b": {"cost": None, "most": None},
    }
    with decimals.prices(url).reader() as reader:
        assert reader.get((Decimal("0.9"), "a")) is None
        assert reader.get((Decimal("910"), "a")) is None


@each_schema
@pytest.mark.rule("state_backends.sql.sqlite_decimals", "Rules", 4)
def test_a_coordinator_goes_on_and_undoes_what_was_written(url: str) -> None:
    """The previous values are brought up as well."""
    prices, kept = decimals.prices(url), decimals.kept(url)
    store = StateDriver(prices, epoch=2)
    assert read(prices) == store.contents() == PRICES

    store.run(2, lambda state: None, attempt=1)
    assert store.contents() == BEFORE
    store.run(2, decimals.second, attempt=2)
    assert store.contents() == PRICES
    plain = StateDriver(kept, epoch=2)
    plain.puts(3, {"a": Decimal("12.50")})
    assert read(kept) == {"a": Decimal("12.50"), "b": Decimal("-9.10")}


@each_schema
def test_sums_go_on_from_what_was_written(url: str) -> None:
    store = StateDriver(decimals.means(url), epoch=2)

    store.merge(2, [("a", Decimal("1.00"), 1, Decimal("9.11"))], attempt=1)
    assert store.contents()["a"]["cost_sum"] == Decimal("11.00")
    assert read(decimals.means(url))["a"] == {"cost": Decimal("2.75"), "most": Decimal("9.11")}


def test_views_indexes_and_triggers_are_those_of_the_new_table(
    url: str, plain: sqlite3.Connection
) -> None:
    plain.execute("CREATE INDEX mine ON means (cost_count)")
    plain.execute("CREATE TABLE seen (k TEXT)")
    plain.execute(
        "CREATE TRIGGER notes AFTER INSERT ON means BEGIN INSERT INTO seen VALUES (NEW.k); END"
    )
    objects = "SELECT type, name, tbl_name FROM sqlite_schema ORDER BY name"
    before = plain.execute(objects).fetchall()

    store = StateDriver(decimals.means(url), epoch=2)
    assert plain.execute(objects).fetchall() == before
    assert plain.execute("SELECT * FROM seen").fetchall() == []
    rows = plain.execute("SELECT cost_sum, most, cost FROM means_view ORDER BY k").fetchall()
    assert rows == [(9.97, 10.1, 2.4925), (None, None, None)]
    store.merge(3, [("c", Decimal("1.00"), 1, Decimal("1.00"))])
    assert plain.execute("SELECT * FROM seen").fetchall() == [("c",)]


@pytest.mark.rule("state_backends.sql.sqlite_decimals", "Rules", 3)
def test_a_version_that_would_take_hundredths_for_units_refuses_the_ledger(
    url: str, plain: sqlite3.Connection
) -> None:
    """Versions before it refuse every row beyond schema 2; this one those beyond its own."""
    schemas = "SELECT state, schema_version FROM txtopo_ledger ORDER BY state"
    decimals.prices(url).open().create()
    StateDriver(open_state(url, table="counts"), topology="other")

    found = dict(plain.execute(schemas).fetchall())
    assert found == {"prices": SCALED_SCHEMA, "counts": 2, "kept": 2, "means": 2}
    store = StateDriver(decimals.prices(url), epoch=2)
    store.puts(3, {})
    assert dict(plain.execute(schemas).fetchall()) == found
    plain.execute(f"UPDATE txtopo_ledger SET schema_version = {SCALED_SCHEMA + 1}")
    with pytest.raises(SchemaVersionError), decimals.prices(url).reader():
        pass


def test_a_ledger_of_schema_1_is_brought_up_with_its_decimals(
    url: str, plain: sqlite3.Connection
) -> None:
    there = {row[1] for row in plain.execute("PRAGMA table_info(txtopo_ledger)")}
    for column in there.intersection(LEDGER_COLUMNS_2):
        plain.execute(f"ALTER TABLE txtopo_ledger DROP COLUMN {column}")
    plain.execute("UPDATE txtopo_ledger SET schema_version = 1")
    decimals.prices(url).open().create()
    with decimals.prices(url).reader() as reader:
        assert reader.ledger is not None
        assert (reader.ledger.schema, reader.ledger.txid) == (1, 2)

    store = StateDriver(decimals.prices(url), epoch=2)
    assert (store.ledger.schema, store.ledger.component) == (2, "component")
    assert store.contents() == PRICES


def test_a_crash_leaves_the_earlier_table_or_the_new_one(url: str, tmp_path: Path) -> None:
    """After each statement the files are copied: that is what a process leaves that is killed."""
    copies: list[Path] = []

    def copy(connection: sa.Connection, *_: object) -> None:
        copies.append(tmp_path / f"copy{len(copies)}.db")
        for end in ("", "-wal"):
            if (tmp_path / f"states.db{end}").exists():
                shutil.copy(tmp_path / f"states.db{end}", f"{copies[-1]}{end}")

    sa.event.listen(sa.Engine, "after_cursor_execute", copy)
    sa.event.listen(sa.Engine, "commit", copy)
    try:
        decimals.prices(url).open().create()
    finally:
        sa.event.remove(sa.Engine, "after_cursor_execute", copy)
        sa.event.remove(sa.Engine, "commit", copy)
    copy(None)  # type: ignore[arg-type]

    kinds = set()
    for copied in copies:
        state = decimals.prices(f"sqlite:///{copied}")
        with sqlite3.connect(copied) as connection:
            kinds.add(connection.execute("SELECT typeof(day) FROM prices").fetchone())
        assert read(state) == PRICES
        store = StateDriver(state, epoch=2)
        store.run(2, lambda state: None, attempt=1)
        assert store.contents() == BEFORE
        store.close()
    assert kinds == {("text",), ("integer",)}
    assert len(copies) > 10


@pytest.mark.parametrize(
    ("column", "text"), [("price", "1234567890123456789.0000"), ("prev_price", "no number")]
)
def test_a_text_that_does_not_fit_leaves_everything_as_it_is(
    url: str, plain: sqlite3.Connection, column: str, text: str
) -> None:
    plain.execute(f"UPDATE prices SET {column} = ? WHERE day = '9.1'", (text,))
    before = list(plain.iterdump())

    with pytest.raises(SchemaDrift, match=rf"{text}.*'{column}'.*nothing was changed.*PostgreSQL"):
        decimals.prices(url).open().create()
    assert list(plain.iterdump()) == before


def test_a_table_that_was_changed_by_hand_is_not_made_anew(
    url: str, plain: sqlite3.Connection
) -> None:
    plain.execute("ALTER TABLE prices ADD COLUMN note TEXT")
    before = list(plain.iterdump())

    with pytest.raises(SchemaDrift, match="other columns"):
        decimals.prices(url).open().create()
    assert list(plain.iterdump()) == before


def test_a_state_that_was_too_wide_is_read_but_not_written(
    url: str, plain: sqlite3.Connection
) -> None:
    plain.execute("UPDATE txtopo_ledger SET declaration = replace(declaration, '(9,2)', '(38,2)')")
    digits = Decimal("123456789012345678901234567890.12")
    plain.execute("UPDATE kept SET value = ? WHERE key = 'a'", (str(digits),))
    state = open_state(url, "transactional", "kept", value=Fields("value decimal(38,2)"))

    assert read(state)["a"] == digits
    with pytest.raises(TopologyError, match=r"at most 18 digits; got decimal\(38,2\).*PostgreSQL"):
        state.open().create()
    assert read(state)["a"] == digits
