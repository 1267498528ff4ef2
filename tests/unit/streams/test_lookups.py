"""Streams meet tables from outside at one version a txid, which every replay keeps."""

from __future__ import annotations

import os
import pickle
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

from tests.harness.dying import RaisingScheduler
from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, on, started
from tests.unit.runtime.stamping import ONE_BY_ONE, stored_stamps
from tests.unit.streams.worlds import RecuttingSpout
from txtopo import Fields, StreamBuilder, Sum, Topology, TopologyError, open_state
from txtopo.config import Carrier
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import (
    ConfigError,
    EmitError,
    OffsetRegression,
    SourceDataLost,
    TopologyChanged,
    TxtopoError,
)
from txtopo.metadata import Json
from txtopo.operations import Access, quarantine, show
from txtopo.runtime.start import start_topology
from txtopo.sources.query.reading import QueryEmitter
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from txtopo.streams import (
    DeltaLookup,
    FilesLookup,
    Lookup,
    QueryLookup,
    lookup_sources,
    lookups,
    tumbling,
)
from txtopo.streams.lookup_sources import LookupSource
from txtopo.streams.lookups import LookupTable
from txtopo.testing.checkers.evidence import stored_attempts, stored_stamp
from txtopo.testing.simulation.campaign import quiet
from txtopo.testing.simulation.clock import ThreadHandoff
from txtopo.testing.simulation.history import NodesWrite
from txtopo.testing.simulation.scenario import CHAOS_S, Scenario
from txtopo.testing.simulation.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

deltalake = pytest.importorskip("deltalake")

SALE = Fields("id string, shop string, amount long")
SALES: list[list[Any]] = [
    ["s1", "a", 1],
    ["s2", "b", 2],
    ["s3", None, 3],
    ["s4", "c", 4],
    ["s5", "a", 5],
]
COUNTRIES = {"a": "Austria", "b": "Brazil"}


@pytest.fixture(autouse=True)
def _fresh_process() -> None:
    lookups._loaded.clear()


def shops(folder: Path, countries: dict[Any, Any] = COUNTRIES, mode: Any = "overwrite") -> str:
    """Write a Delta table of shops, and return its path."""
    path = str(folder / "shops")
    rows = pa.table({"shop": list(countries), "country": list(countries.values())})
    deltalake.write_deltalake(path, rows, mode=mode)
    return path


def joined(
    source: Any,
    url: str,
    rows: Sequence[Sequence[Any]] = SALES,
    *,
    how: Any = "left",
    refresh: str = "0 seconds",
    take: int = 10,
    opaque: bool = False,
    key: str = "shop",
    value: str = "country string",
) -> Topology:
    kind = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
    builder = StreamBuilder("enriched")
    sales = builder.source("sales", kind({0: rows}, SALE, take))
    table = builder.lookup("shops", source, key=key, value=value, refresh=refresh)
    known = sales.join(table, on="shop", how=how)
    known.select("id", "country").store(open_state(url, table="countries"), key="id")
    return builder.build_topology()


def countries_in(url: str) -> dict[str, str | None]:
    with open_state(url, table="countries").reader() as reader:
        return dict(reader.items())


def run(topology: Topology, ensemble: MemoryEnsemble | None = None) -> MemoryEnsemble:
    ensemble = ensemble or MemoryEnsemble()
    with started(topology, ONE_BY_ONE, ensemble) as handle:
        handle.process_all_available(LIMIT_S)
    return ensemble


def die(topology: Topology, ensemble: MemoryEnsemble, step: str, times: int = 1) -> None:
    scheduler = RaisingScheduler(step, times)
    handle = start_topology(
        topology.graph, None, ONE_BY_ONE, scheduler=scheduler, ensemble=ensemble
    )
    with pytest.raises((TxtopoError, RuntimeError), match="Died"):
        handle.await_termination(LIMIT_S)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/states.db"


def test_a_left_join_keeps_rows_without_a_match_and_an_inner_one_drops_them(
    tmp_path: Path, url: str
) -> None:
    known = {"s1": "Austria", "s2": "Brazil", "s5": "Austria"}
    run(joined(f"delta://{shops(tmp_path)}", url))
    assert countries_in(url) == known | {"s3": None, "s4": None}

    other = f"sqlite:///{tmp_path}/inner.db"
    run(joined(DeltaLookup(shops(tmp_path)), other, how="inner"))
    assert countries_in(other) == known


def test_null_is_equal_to_nothing_and_may_stand_in_a_lookup_twice(tmp_path: Path, url: str) -> None:
    path = shops(tmp_path, {"a": "Austria", None: "nowhere"})
    shops(tmp_path, {None: "nowhere else"}, "append")

    run(joined(DeltaLookup(path), url))

    assert countries_in(url) == dict.fromkeys(["s2", "s3", "s4"]) | {
        "s1": "Austria",
        "s5": "Austria",
    }


def test_a_key_of_several_columns_is_compared_in_its_order(tmp_path: Path, url: str) -> None:
    path = str(tmp_path / "prices")
    rows = {"day": [1, 1, 2], "shop": ["a", "b", "a"], "price": [1.5, 2.5, 3.5]}
    deltalake.write_deltalake(path, pa.table(rows))
    builder = StreamBuilder("priced")
    spout = MemoryTransactionalSpout({0: SALES}, SALE, 10)
    prices = builder.lookup("prices", DeltaLookup(path), key=["shop", "day"], value="price double")
    priced = builder.source("sales", spout).join(prices, on=["shop", "amount"], how="left")
    priced.select("id", country="price").store(open_state(url, table="countries"), key="id")

    run(builder.build_topology())

    assert countries_in(url) == dict.fromkeys(["s2", "s3", "s4", "s5"]) | {"s1": 1.5}


def test_a_newer_version_meets_later_txids_alone(tmp_path: Path, url: str) -> None:
    path = shops(tmp_path)
    rows = [["s1", "a", 1]]
    ensemble = run(joined(DeltaLookup(path), url, rows))
    shops(tmp_path, {"a": "Albania"})

    run(joined(DeltaLookup(path), url, [*rows, ["s2", "a", 2]], take=1), ensemble)

    assert countries_in(url) == {"s1": "Austria", "s2": "Albania"}
    tables = {txid: stamp["tables"] for txid, stamp in stored_stamps(ensemble).items()}
    assert {txid: each["shops"]["version"]["version"] for txid, each in tables.items()} == {
        1: 0,
        2: 1,
    }


@pytest.mark.integration
@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize("step", ["store-metadata.after", "turn.after", "advance.before"])
def test_a_batch_that_is_done_again_reads_the_version_that_it_was_planned_with(
    tmp_path: Path, url: str, step: str, opaque: bool
) -> None:
    ensemble, topology = (
        MemoryEnsemble(),
        joined(DeltaLookup(shops(tmp_path)), url, opaque=opaque, take=2),
    )
    die(topology, ensemble, step)
    planned = len(stored_stamps(ensemble))
    shops(tmp_path, {"a": "Albania", "b": "Bolivia", "c": "Chile"})
    lookups._loaded.clear()

    run(topology, ensemble)

    found = countries_in(url)
    assert planned
    assert (found["s1"], found["s2"]) == ("Austria", "Brazil")
    assert found["s5"] == ("Austria" if planned == 3 else "Albania")


def test_a_version_that_was_vacuumed_under_a_replay_stops_the_run(tmp_path: Path, url: str) -> None:
    path = shops(tmp_path)
    topology, ensemble = joined(DeltaLookup(path), url), MemoryEnsemble()
    die(topology, ensemble, "store-metadata.after")
    shops(tmp_path, {"a": "Albania"})
    deltalake.DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    lookups._loaded.clear()

    with pytest.raises(
        SourceDataLost,
        match=r"version 0 of .*shops' no longer exists, .* vacuumed, or restored from a copy\?",
    ) as told:
        run(topology, ensemble)
    assert "in lookup 'shops'" in "".join(told.value.__notes__)


@pytest.mark.parametrize("other", ["delta", "files"])
def test_another_source_under_the_id_of_a_lookup_meets_later_txids_alone(
    tmp_path: Path, url: str, other: str
) -> None:
    first = DeltaLookup(shops(tmp_path))
    csv(tmp_path, "shops.csv", "a,Albania")
    second: Any = FilesLookup(f"{tmp_path}/*.csv")
    if other == "delta":  # which has a version 0, too
        (tmp_path / "other").mkdir()
        second = DeltaLookup(shops(tmp_path / "other", {"a": "Albania"}))
    rows, ensemble = [["s1", "a", 1], ["s2", "a", 2]], MemoryEnsemble()
    run(joined(first, url, rows[:1], take=1), ensemble)
    die(joined(first, url, rows, take=1), ensemble, "store-metadata.after")

    with pytest.raises(TopologyChanged, match="source of lookup 'shops' has changed, but txid 2"):
        run(joined(second, url, rows, take=1), ensemble)
    assert countries_in(url) == {"s1": "Austria"}

    run(joined(first, url, rows, take=1), ensemble)
    run(joined(second, url, [*rows, ["s3", "a", 3]], take=1), ensemble)
    assert countries_in(url) == {"s1": "Austria", "s2": "Austria", "s3": "Albania"}


def test_a_table_of_delta_that_was_made_again_is_another_one(tmp_path: Path, url: str) -> None:
    rows, path, ensemble = [["s1", "a", 1]], shops(tmp_path), MemoryEnsemble()
    run(joined(DeltaLookup(path), url, rows), ensemble)
    shutil.rmtree(path)
    shops(tmp_path, {"a": "Albania"})  # version 0 as well, which this process holds of the other

    rows = [*rows, ["s2", "a", 2]]
    run(joined(DeltaLookup(path), url, rows, take=1), ensemble)
    assert countries_in(url) == {"s1": "Austria", "s2": "Albania"}

    rows = [*rows, ["s3", "a", 3]]
    die(joined(DeltaLookup(path), url, rows, take=1), ensemble, "store-metadata.after")
    shutil.rmtree(path)
    shops(tmp_path, {"a": "Andorra"})
    lookups._loaded.clear()
    with pytest.raises(SourceDataLost, match=r"shops' is not the one that .*; was it deleted"):
        run(joined(DeltaLookup(path), url, rows, take=1), ensemble)


def restored(path: str, kept: str, countries: dict[Any, Any]) -> None:
    """Put a copy of a table in its place, and write another next version into it."""
    shutil.rmtree(path)
    shutil.copytree(kept, path)
    shops(Path(path).parent, countries)


def test_a_table_of_delta_that_was_restored_from_a_copy_is_another_one(
    tmp_path: Path, url: str
) -> None:
    """Its id is the same, and so are the numbers of its versions."""
    rows, path, ensemble = [["s1", "a", 1]], shops(tmp_path), MemoryEnsemble()
    kept = shutil.copytree(path, tmp_path / "kept")
    shops(tmp_path, {"a": "Albania"})
    run(joined(DeltaLookup(path), url, rows), ensemble)
    restored(path, str(kept), {"a": "Andorra"})

    rows = [*rows, ["s2", "a", 2]]
    run(joined(DeltaLookup(path), url, rows, take=1), ensemble)
    assert countries_in(url) == {"s1": "Albania", "s2": "Andorra"}

    rows = [*rows, ["s3", "a", 3]]
    die(joined(DeltaLookup(path), url, rows, take=1), ensemble, "store-metadata.after")
    restored(path, str(kept), {"a": "Armenia"})
    lookups._loaded.clear()
    with pytest.raises(OffsetRegression, match=r"is not the one that .*restored from a copy\?"):
        run(joined(DeltaLookup(path), url, rows, take=1), ensemble)


def test_a_table_of_delta_whose_log_was_cleaned_up_is_looked_up_as_before(
    tmp_path: Path, url: str
) -> None:
    """The rows of a version are there as long as its checkpoint."""
    rows, path, ensemble = [["s1", "a", 1]], shops(tmp_path), MemoryEnsemble()
    die(joined(DeltaLookup(path), url, rows), ensemble, "store-metadata.after")
    deltalake.DeltaTable(path).create_checkpoint()
    os.remove(f"{path}/_delta_log/{0:020}.json")
    lookups._loaded.clear()

    run(joined(DeltaLookup(path), url, rows), ensemble)

    assert countries_in(url) == {"s1": "Austria"}


def test_what_is_stored_of_a_source_shows_no_password_and_stays_when_it_is_changed() -> None:
    def stored(password: str, query: str = "shops") -> str:
        url = f"postgresql://me:{password}@host/db"
        return QueryLookup(url, query, as_of="since", settle_s=1).identity

    assert stored("old") == stored("new")
    assert "old" not in stored("old")
    assert stored("old") != stored("old", "other")
    options = {"secret": "old"}
    with_options = DeltaLookup("s3://lake/shops", storage_options=options)
    assert with_options.identity == DeltaLookup("s3://lake/shops").identity


def twice(folder: Path) -> LookupSource:
    path = shops(folder)
    shops(folder, {"a": "Andorra"}, "append")
    return DeltaLookup(path)


def unreadable(folder: Path) -> LookupSource:
    csv(folder, "shops-1.csv", "a,Austria,3")
    return FilesLookup(f"{folder}/shops-*.csv")


def without_the_column(folder: Path) -> LookupSource:
    path = str(folder / "shops")
    rows = pa.table({"shop": ["a"], "land": ["Andorra"]})
    deltalake.write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite")
    return DeltaLookup(path)


def gone(folder: Path) -> LookupSource:
    shutil.rmtree(folder / "shops")
    return DeltaLookup(folder / "shops")


@pytest.mark.parametrize("broken", [twice, without_the_column, gone])
def test_a_version_that_cannot_be_used_is_not_planned_and_the_one_before_stays(
    tmp_path: Path, url: str, broken: Callable[[Path], LookupSource]
) -> None:
    table = DeltaLookup(shops(tmp_path))
    fields = [Fields("shop string"), Fields("country string")]
    read = LookupTable("shops", table, ("shop",), fields[1], 0, fields[0])
    held = read.newest(None, 0)

    broken(tmp_path)
    with pytest.raises(ConfigError, match=r"twice|unknown column|no Delta table"):
        read.newest(held, 0)

    rows = pa.table({"shop": ["a"], "country": ["Albania"]})
    deltalake.write_deltalake(table.name, rows, mode="overwrite", schema_mode="overwrite")
    repaired = read.newest(held, 0)
    assert read.loaded(repaired).columns[0].to_pylist() == ["Albania"]


@pytest.mark.parametrize("broken", [twice, unreadable])
def test_a_first_version_that_cannot_be_used_is_not_stored_so_a_mended_table_goes_on(
    tmp_path: Path, url: str, broken: Callable[[Path], LookupSource]
) -> None:
    ensemble, source = MemoryEnsemble(), broken(tmp_path)
    with pytest.raises((ConfigError, EmitError)):
        run(joined(source, url), ensemble)
    assert stored_stamps(ensemble) == {}

    shops(tmp_path, {"a": "Albania"})
    csv(tmp_path, "shops-1.csv", "a,Albania")
    run(joined(source, url), ensemble)
    assert countries_in(url)["s1"] == "Albania"


def test_a_txid_whose_version_is_gone_is_taken_out_and_its_rows_come_again(
    tmp_path: Path, url: str
) -> None:
    rows, path, ensemble = [["s1", "a", 1], ["s2", "a", 2]], shops(tmp_path), MemoryEnsemble()
    run(joined(DeltaLookup(path), url, rows[:1], take=1), ensemble)
    topology, access = joined(DeltaLookup(path), url, rows, take=1), Access(ensemble=ensemble)
    die(topology, ensemble, "store-metadata.after")
    shops(tmp_path, {"a": "Albania"})
    deltalake.DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    lookups._loaded.clear()
    with pytest.raises(SourceDataLost, match="version 0"):
        run(topology, ensemble)

    batches: Any = show(topology, ONE_BY_ONE, access=access).batches
    quarantine(topology, 2, ONE_BY_ONE, end=batches[1]["metadata"], access=access).apply()

    run(topology, ensemble)
    assert countries_in(url) == {"s1": "Austria", "s2": "Albania"}


def csv(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"shop,country\n{text}\n")
    return path


def test_the_last_file_by_name_is_the_newest_version(tmp_path: Path, url: str) -> None:
    csv(tmp_path, "shops-1.csv", "a,Austria")
    csv(tmp_path, "shops-2.csv", "a,Albania\nc,Chile")

    ensemble = run(joined(FilesLookup(f"{tmp_path}/shops-*.csv"), url))

    nobody: dict[str, Any] = dict.fromkeys(["s2", "s3"])
    assert countries_in(url) == nobody | {"s1": "Albania", "s4": "Chile", "s5": "Albania"}
    version = stored_stamps(ensemble)[1]["tables"]["shops"]["version"]
    assert version["file"] == f"{tmp_path}/shops-2.csv"
    assert version["bytes"] == 31


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda path: path.write_text("shop,country\na,Albania\n"), "it was changed"),
        (lambda path: path.write_text("shop,country\na,Australia\n"), "it was changed"),
        (lambda path: path.unlink(), "it is gone"),
    ],
)
def test_a_file_that_was_changed_under_a_replay_stops_the_run(
    tmp_path: Path, url: str, change: Callable[[Path], object], told: str
) -> None:
    path = csv(tmp_path, "shops-1.csv", "a,Austria")
    csv(tmp_path, "shops-0.csv", "a,Nowhere")
    ensemble = MemoryEnsemble()
    die(joined(FilesLookup(f"{tmp_path}/shops-*.csv"), url), ensemble, "store-metadata.after")
    change(path)
    lookups._loaded.clear()

    with pytest.raises(SourceDataLost, match=f"shops-1.csv', .* {told}; .* restore it as it was"):
        run(joined(FilesLookup(f"{tmp_path}/shops-*.csv"), url), ensemble)

    csv(tmp_path, "shops-1.csv", "a,Austria")  # with another time: only the content counts
    os.utime(path, (1, 1))
    run(joined(FilesLookup(f"{tmp_path}/shops-*.csv"), url), ensemble)
    assert countries_in(url)["s1"] == "Austria"


class Shops:
    """A table of SQLite whose rows say from when on they hold."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shops.db"
        self.execute("CREATE TABLE shops (shop TEXT, country TEXT, valid_from TEXT)")

    def execute(self, statement: str, *values: Any) -> None:
        with sqlite3.connect(self.path) as connection:
            connection.execute(statement, values)

    def add(self, shop: str, country: str | None, ago_s: float) -> None:
        at = datetime.now(UTC) - timedelta(seconds=ago_s)
        text = at.strftime("%Y-%m-%d %H:%M:%S.%f")
        self.execute("INSERT INTO shops VALUES (?, ?, ?)", shop, country, text)

    def lookup(self, settle_s: float = 10) -> QueryLookup:
        return QueryLookup(f"sqlite:///{self.path}", "shops", as_of="valid_from", settle_s=settle_s)


def test_of_each_key_the_newest_row_counts_whose_time_has_come(tmp_path: Path, url: str) -> None:
    table = Shops(tmp_path)
    table.add("b", "Bolivia", 50)
    table.add("a", "Austria", 40)
    table.add("b", "Brazil", 30)
    table.add("c", "Chile", 20)
    table.add("c", None, 15)
    table.add("a", "not settled", 5)
    table.add("a", "not yet", -3600)

    ensemble = run(joined(table.lookup(), url))

    nobody: dict[str, Any] = dict.fromkeys(["s3", "s4"])
    assert countries_in(url) == nobody | {"s1": "Austria", "s2": "Brazil", "s5": "Austria"}
    assert stored_stamps(ensemble)[1]["tables"]["shops"]["version"]["rows"] == 5


def test_a_row_that_came_too_late_stops_a_replay(tmp_path: Path, url: str) -> None:
    table, ensemble = Shops(tmp_path), MemoryEnsemble()
    table.add("a", "Austria", 40)
    table.add("b", "Brazil", 30)
    die(joined(table.lookup(), url), ensemble, "store-metadata.after")
    table.add("a", "Albania", 35)
    lookups._loaded.clear()

    with pytest.raises(SourceDataLost, match=r"got 3 rows; expected 2; rows came late"):
        run(joined(table.lookup(), url), ensemble)


def in_place(table: Shops) -> None:
    table.execute("UPDATE shops SET country = 'Albania' WHERE shop = 'a'")


def superseded(table: Shops) -> None:
    table.execute("UPDATE shops SET country = 'Nowhere' WHERE country = 'Once'")


def added_and_deleted(table: Shops) -> None:
    table.execute("DELETE FROM shops WHERE country = 'Once'")
    table.add("b", "Bolivia", 35)


@pytest.mark.parametrize("change", [in_place, superseded, added_and_deleted])
def test_a_table_that_was_changed_and_has_as_many_rows_stops_a_replay(
    tmp_path: Path, url: str, change: Callable[[Shops], None]
) -> None:
    """The newest time and the number of rows are the same."""
    table, ensemble = Shops(tmp_path), MemoryEnsemble()
    table.add("a", "Once", 50)
    table.add("a", "Austria", 40)
    table.add("b", "Brazil", 30)
    die(joined(table.lookup(), url), ensemble, "store-metadata.after")
    kept = table.path.read_bytes()
    change(table)
    lookups._loaded.clear()

    with pytest.raises(SourceDataLost, match=r"up to 2.* got the same number, .* restored"):
        run(joined(table.lookup(), url), ensemble)

    table.path.write_bytes(kept)
    run(joined(table.lookup(), url), ensemble)
    assert (countries_in(url)["s1"], countries_in(url)["s2"]) == ("Austria", "Brazil")


def test_a_new_driver_plans_with_the_rows_of_a_table_that_was_restored(
    tmp_path: Path, url: str
) -> None:
    rows, table, ensemble = [["s1", "a", 1]], Shops(tmp_path), MemoryEnsemble()
    table.add("a", "Austria", 40)
    run(joined(table.lookup(), url, rows), ensemble)
    in_place(table)

    run(joined(table.lookup(), url, [*rows, ["s2", "a", 2]], take=1), ensemble)

    assert countries_in(url) == {"s1": "Austria", "s2": "Albania"}


def test_other_columns_of_a_lookup_are_not_compared_with_those_of_the_plan(
    tmp_path: Path, url: str
) -> None:
    table, ensemble = Shops(tmp_path), MemoryEnsemble()
    table.add("a", "Austria", 40)
    die(joined(table.lookup(), url), ensemble, "store-metadata.after")
    lookups._loaded.clear()

    other = joined(table.lookup(), url, value="country string, valid_from timestamp")
    run(other, ensemble)

    assert countries_in(url)["s1"] == "Austria"


def test_the_order_and_the_zone_of_rows_are_no_part_of_their_digest() -> None:
    times = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)]
    rows = pa.table({"shop": ["ä", None], "since": pa.array(times, pa.timestamp("us", "UTC"))})
    berlin = pa.timestamp("us", "Europe/Berlin")
    other = pa.table({"shop": [None, "ä"], "since": pa.array(times[::-1], berlin)})

    assert lookup_sources._digest(rows) == lookup_sources._digest(other)
    assert lookup_sources._digest(rows) != lookup_sources._digest(rows.slice(0, 1))


def test_a_table_is_read_when_its_version_is_new_and_not_when_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, key, value = Shops(tmp_path), Fields("shop string"), Fields("country string")
    fields = Fields.of([*key, *value])
    table.add("a", "Austria", 40)
    reads: list[Json] = []
    monkeypatch.setattr(lookup_sources, "QueryEmitter", counted_emitter(reads))
    source, now_ms = table.lookup(), int(datetime.now(UTC).timestamp() * 1000)

    first = source.newest(fields, None, now_ms)
    source.read(first, key, value)
    assert source.newest(fields, first, now_ms) == first
    assert len(reads) == 1

    table.add("a", "Albania", 20)
    second = source.newest(fields, first, now_ms)
    assert second != first
    assert len(reads) == 2
    pickle.loads(pickle.dumps(source)).read(second, key, value)
    assert len(reads) == 3


def counted_emitter(reads: list[Json]) -> type[QueryEmitter]:
    class Emitter(QueryEmitter):
        def emit_batch(self, attempt: Any, metadata: Json, collector: Any) -> None:
            reads.append(metadata)
            super().emit_batch(attempt, metadata, collector)

    return Emitter


@pytest.mark.parametrize(
    ("as_of", "time"),
    [
        ("valid_from", "2026-01-02T00:00:00"),
        ("valid_from", "2026-01-02 00:00:00+02:00"),
        ("valid_from", "2026-01-02 00:00:00.5"),
        ("valid_from", "1767312000"),
        ("valid_from timestamp_ntz", "2026-01-02T00:00:00"),
        ("valid_from date", "2026-01-02 00:00:00"),
    ],
)
def test_a_text_of_sqlite_that_would_be_compared_wrongly_is_refused(
    tmp_path: Path, url: str, as_of: str, time: str
) -> None:
    table = Shops(tmp_path)
    table.execute("INSERT INTO shops VALUES ('a', 'Austria', '2026-01-01')")
    table.execute("INSERT INTO shops VALUES ('a', 'Albania', ?)", time)
    source = QueryLookup(f"sqlite:///{table.path}", "shops", as_of=as_of, settle_s=0)

    with pytest.raises(ConfigError, match=r"'valid_from' of 'shops' .* got '.*'; expected the"):
        run(joined(source, url))


@pytest.mark.parametrize(
    "time", ["2026-01-02", "2026-01-02 00:00:00", "2026-01-02 00:00:00.000", "2026-01-02 01:00:00"]
)
def test_a_text_of_sqlite_as_it_and_sqlalchemy_write_it_is_read(
    tmp_path: Path, url: str, time: str
) -> None:
    table = Shops(tmp_path)
    table.execute("INSERT INTO shops VALUES ('a', 'Austria', '2026-01-01 23:59:59.999999')")
    table.execute("INSERT INTO shops VALUES ('a', 'Albania', ?)", time)

    run(joined(table.lookup(), url))

    assert countries_in(url)["s1"] == "Albania"


def test_an_empty_table_answers_nobody(tmp_path: Path, url: str) -> None:
    run(joined(Shops(tmp_path).lookup(), url))

    assert countries_in(url) == dict.fromkeys(["s1", "s2", "s3", "s4", "s5"])


class Counted(LookupSource):
    """Says how often it was read."""

    name = identity = "counted"
    reads: ClassVar[list[Json]] = []

    def check(self, fields: Fields) -> None:
        pass

    def newest(self, fields: Fields, held: Json, time_ms: int) -> Json:
        return (held or 0) + 1  # type: ignore[operator]

    def read(self, version: Json, key: Fields, value: Fields) -> pa.Table:
        self.reads.append(version)
        return pa.table({"shop": ["a"], "country": [f"version {version}"]})


def test_a_process_reads_a_version_once_and_forgets_old_ones(url: str) -> None:
    Counted.reads.clear()
    rows = [[f"s{number}", "a", number] for number in range(40)]
    builder = StreamBuilder("enriched")
    sales = builder.source("sales", MemoryTransactionalSpout({0: rows}, SALE, 10), 2)
    table = a_lookup(builder, refresh="0 seconds")
    first = sales.join(table, on="shop", parallelism=2)
    second = first.select("id", "shop", before="country").join(table, on="shop")
    second.select("id", "country").store(open_state(url, table="countries"), key="id")

    # The driver reads a version when it plans it; here it plans no more than this process holds.
    config = replace(ONE_BY_ONE, max_spout_pending=1)
    with started(builder.build_topology(), config, MemoryEnsemble()) as handle:
        handle.process_all_available(LIMIT_S)

    assert sorted(Counted.reads) == [1, 2, 3, 4]  # type: ignore[type-var]
    assert countries_in(url)["s39"] == "version 4"
    (held,) = lookups._loaded.values()
    assert len(held) == lookups.VERSIONS_KEPT


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(12))
def test_each_row_has_the_version_of_its_txid_whatever_crashes(seed: int) -> None:
    """The version is another one in each plan, and batches are cut again in each attempt."""
    rows = [[f"s{number}", "a", number] for number in range(24)]
    builder = StreamBuilder("enriched")
    sales = builder.source("sales", RecuttingSpout(rows, 1 + seed % 4), 1 + seed % 3)
    known = sales.join(a_lookup(builder, refresh="0 seconds"), on="shop")
    seen = known.map(
        lambda row: [row["id"], row["country"], row.attempt.txid],
        "id string, country string, seen long",
    )
    seen.store(open_state("memory:", table="countries"), key="id")
    scenario, handoff = Scenario.drawn(seed), ThreadHandoff()
    config = replace(LOCAL, history_txids=1000)
    world = World(seed, scenario.faults, config, scenario.coordinators, handoff)
    world.take(builder.build_topology())
    with quiet():
        history = world.run(CHAOS_S)
    handoff.close()

    planned: dict[int, Any] = {}
    for write in history.writes:
        if not isinstance(write, NodesWrite):
            continue
        for attempt in stored_attempts("enriched", write):
            stamp = stored_stamp("enriched", write.after, attempt.txid)
            assert stamp is not None
            assert planned.setdefault(attempt.txid, stamp["tables"]) == stamp["tables"]
    found = history.stores["countries"].rows.values()
    assert len(found) == len(rows)
    for row in found:
        country, txid = row.current
        assert country == f"version {planned[txid]['shops']['version']}"


def test_the_column_of_the_planned_time_is_that_of_the_txid(url: str) -> None:
    builder = StreamBuilder("timed")
    sales = builder.source("sales", MemoryTransactionalSpout({0: SALES}, SALE, 2))
    sales.with_planned_time("seen").select("id", country="seen").store(
        open_state(url, table="countries"), key="id"
    )

    ensemble = run(builder.build_topology())

    seen: dict[str, Any] = countries_in(url)
    stored = stored_stamps(ensemble)[3]["time"]
    assert seen["s1"] == seen["s2"] <= seen["s3"] == seen["s4"] <= seen["s5"]
    assert seen["s5"].timestamp() * 1000 == stored


def test_explain_tells_which_lookup_an_operator_joins(url: str) -> None:
    assert "ƒ join shops → select" in str(joined(Counted(), url).explain(LOCAL))


def test_a_joined_stream_keeps_its_event_time(tmp_path: Path, url: str) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    minutes = [("a", 1), ("b", 2), ("a", 7), ("b", 12)]
    rows = [[f"s{m}", shop, m, noon + timedelta(minutes=m)] for shop, m in minutes]
    fields = Fields("id string, shop string, amount long, ts timestamp")
    builder = StreamBuilder("windows")
    spout = MemoryTransactionalSpout({0: rows}, fields, 1)
    sales = builder.source("sales", spout, event_time="ts")
    shop = builder.lookup("shops", DeltaLookup(shops(tmp_path)), key="shop", value="country string")
    windows = sales.join(shop, on="shop").group_by("country").window(tumbling("5 minutes"))
    windows.persistent_aggregate(open_state(url, table="revenue"), revenue=Sum("amount"))

    run(builder.build_topology())

    with open_state(url, table="revenue").reader() as reader:
        found = {
            (key[0].minute, key[1]): row["revenue"] for key, row in dict(reader.items()).items()
        }
    assert found == {(0, "Austria"): 1, (0, "Brazil"): 2, (5, "Austria"): 7, (10, "Brazil"): 12}


@pytest.mark.spark
@pytest.mark.parametrize("carrier", ["rdd", "resident"])
def test_tasks_of_spark_read_the_version_of_the_plan(
    carrier: Carrier, spark: SparkSession, tmp_path: Path, url: str
) -> None:
    topology = joined(DeltaLookup(shops(tmp_path)), url, take=2)

    with started(topology, on(carrier, LOCAL), MemoryEnsemble(), spark=spark) as handle:
        handle.process_all_available(LIMIT_S)

    nobody: dict[str, Any] = dict.fromkeys(["s3", "s4"])
    assert countries_in(url) == nobody | {"s1": "Austria", "s2": "Brazil", "s5": "Austria"}


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"value": "country string, sice long"}, r"unknown column 'sice' of .*; known are 'count"),
        ({"key": "shops"}, r"unknown column 'shops' of .*; did you mean 'shop'\?"),
        ({"value": "country long"}, r"column 'country' .* another type; got .*; expected int64"),
    ],
)
def test_columns_that_do_not_fit_are_told_at_the_start(
    tmp_path: Path, url: str, given: dict[str, Any], error: str
) -> None:
    topology = joined(DeltaLookup(shops(tmp_path)), url, **given)

    with pytest.raises(ConfigError, match=error) as told:
        run(topology)
    assert "in lookup 'shops'" in "".join(told.value.__notes__)


def test_a_key_of_another_type_is_told_at_the_start(tmp_path: Path, url: str) -> None:
    path = str(tmp_path / "shops")
    deltalake.write_deltalake(path, pa.table({"shop": [1], "country": ["Austria"]}))

    with pytest.raises(
        ConfigError, match=r"column 'shop' .* another type; got int64; expected str"
    ):
        run(joined(DeltaLookup(path), url))


def test_a_table_that_is_not_there_is_told_at_the_start(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError, match=r"no Delta table at .*/nothing'; expected the folder"):
        run(joined(DeltaLookup(tmp_path / "nothing"), url))
    (tmp_path / "file").write_text("no table")
    with pytest.raises(ConfigError, match=r"no Delta table at .*/file'; expected the folder"):
        run(joined(DeltaLookup(tmp_path / "file"), url))
    with pytest.raises(ConfigError, match=r"a lookup has no file; got .*nothing-\*"):
        run(joined(FilesLookup(f"{tmp_path}/nothing-*.csv"), url))
    source = QueryLookup(f"sqlite:///{tmp_path}/e.db", "shops", as_of="since", settle_s=1)
    with pytest.raises(ConfigError, match=r"the query cannot be run: no such table: shops"):
        run(joined(source, url))


def test_a_key_that_stands_twice_is_refused_with_the_key(tmp_path: Path, url: str) -> None:
    shops(tmp_path)
    path = shops(tmp_path, {"b": "Bolivia"}, "append")

    with pytest.raises(ConfigError, match=r"key 'b' occurs twice in version 1 of .*/shops; expec"):
        run(joined(DeltaLookup(path), url))


def test_a_file_with_a_key_twice_is_refused_with_the_key(tmp_path: Path, url: str) -> None:
    csv(tmp_path, "shops-1.csv", "a,Austria\na,Albania")

    with pytest.raises(ConfigError, match=r"key 'a' occurs twice in file '.*/shops-1.csv'; expec"):
        run(joined(FilesLookup(f"{tmp_path}/shops-*.csv"), url))


def test_two_rows_of_a_key_at_one_time_are_refused_with_the_key(tmp_path: Path, url: str) -> None:
    table = Shops(tmp_path)
    for country in ("Austria", "Albania"):
        table.execute("INSERT INTO shops VALUES ('a', ?, '2026-01-01 00:00:00.000000')", country)

    with pytest.raises(ConfigError, match=r"key 'a' occurs twice"):
        run(joined(table.lookup(), url))


def a_lookup(builder: StreamBuilder, **given: Any) -> Lookup:
    arguments = {"source": Counted(), "key": "shop", "value": "country string", **given}
    return builder.lookup("shops", **arguments)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (
            {"source": "postgresql://host/db"},
            "cannot be read; got 'postgresql://host/db'; .*as_of=",
        ),
        ({"source": Path("shops")}, "cannot be read; got .*shops.*; expected 'delta:///folder'"),
        ({"key": []}, "expected distinct names"),
        ({"key": ["shop", "shop"]}, "expected distinct names"),
        ({"key": 3}, "expected the name of a column"),
        ({"value": "shop string"}, "has column 'shop' twice"),
        ({"value": ""}, "no fields are declared"),
        ({"value": {"country": "string"}}, "are of the wrong type"),
        ({"refresh": "often"}, "refresh of lookup 'shops' is not a duration"),
        ({"refresh": "-1 second"}, "not a duration"),
    ],
)
def test_a_lookup_that_makes_no_sense_is_refused(given: dict[str, Any], error: str) -> None:
    with pytest.raises(TopologyError, match=error):
        a_lookup(StreamBuilder("b"), **given)


@pytest.mark.parametrize(
    ("join", "error"),
    [
        (lambda s, t: s.join(t, on="shpo"), r"unknown column 'shpo'; did you mean 'shop'"),
        (lambda s, t: s.join(t, on=["shop", "id"]), r"compares 2 columns with the 1 of the key"),
        (lambda s, t: s.join(t, on="shop", how="outer"), r"join has no how='outer'"),
        (lambda s, t: s.join("shops", on="shop"), r"join does not accept a str"),
        (lambda s, t: s.join(t, on="shop", within=("0 s", "1 s")), r"lookup takes no within"),
        (lambda s, t: s.join(s, on="shop"), r"join of two streams needs a state"),
        (lambda s, t: s.join(a_lookup(StreamBuilder("c")), on="shop"), r"of another StreamBuilder"),
        (lambda s, t: s.select("shop", country="id").join(t, on="shop"), r"'country' twice"),
        (lambda s, t: s.with_planned_time("shop"), r"would make column 'shop' twice"),
        (lambda s, t: s.with_planned_time("no name"), r"no name|type"),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(join: Any, error: str) -> None:
    builder = StreamBuilder("b")
    sales = builder.source("sales", MemoryTransactionalSpout({0: SALES}, SALE, 1))
    table = a_lookup(builder)

    with pytest.raises(TopologyError, match=error):
        join(sales, table)


def test_an_id_is_given_once() -> None:
    builder = StreamBuilder("b")
    a_lookup(builder)

    with pytest.raises(TopologyError, match="lookup id 'shops' is used twice"):
        a_lookup(builder)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: FilesLookup("x", format="xml"), "got 'xml'; expected 'csv'"),  # type: ignore[arg-type]
        (
            lambda: QueryLookup("sqlite://", "t", as_of="a long", settle_s=0),
            "expected a column with the time from which a row is valid",
        ),
        (lambda: QueryLookup("sqlite://", "t", as_of="a", settle_s=-1), "settle_s .* got -1"),
        (
            lambda: QueryLookup("sqlite://", "t", as_of="a date, b date", settle_s=0),
            "as_of .* wrong",
        ),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(make: Callable[[], object], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        make()
