"""``txtopo state`` with real stores: what it lists, shows, looks up, queries and exports."""

from __future__ import annotations

import csv
import datetime
import decimal
import itertools
import json
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.harness.servers.redis import RedisServer
from tests.unit.command.documents import document
from txtopo import Count, Fields, Mean
from txtopo.command.exports import export
from txtopo.command.program import FAILED, UNREACHABLE, WRONG_CALL, run
from txtopo.state import open_state
from txtopo.testing.conformance.driver import StateDriver, putting, release

U = datetime.UTC
KEY = Fields("city string, day date")
VALUE = Fields(
    "price decimal(18,2), at timestamp, local timestamp_ntz, raw binary, note json, ratio double, "
    "name string, ok boolean, n long"
)
PARIS = ("Paris", datetime.date(2026, 1, 31))
PARIS_VALUES = (
    decimal.Decimal("1234567890123456.78"),
    datetime.datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=U),
    datetime.datetime(1999, 12, 31, 23, 59, 59, 999_999),
    b"\0\xff",
    {"a": [1, None, "é"], "b": 0.1},
    0.1,
    'a,"b\né',
    True,
    2**63 - 1,
)
ROME = ("Rome", datetime.date(1, 1, 1))
PARIS_JSON = {
    "price": "1234567890123456.78",
    "at": "2026-01-01T01:02:03.000004+00:00",
    "local": "1999-12-31T23:59:59.999999",
    "raw": "AP8=",
    "note": {"a": [1, None, "é"], "b": 0.1},
    "ratio": 0.1,
    "name": 'a,"b\né',
    "ok": True,
    "n": 2**63 - 1,
}
ODD = "\x1b[31mred\n"
_numbers = itertools.count()

STORES = [
    "sqlite",
    "delta",
    pytest.param("postgresql", marks=pytest.mark.service("postgresql")),
    pytest.param("mariadb", marks=pytest.mark.service("mariadb")),
    pytest.param("redis", marks=pytest.mark.service("redis")),
    pytest.param("redis-map", marks=pytest.mark.service("redis")),
]
DATABASES = [store for store in STORES if store not in ("delta",) and "redis" not in str(store)]


def store_url(request: pytest.FixtureRequest, store: str, folder: Path) -> str:
    """Return the URL of an empty store."""
    match store:
        case "sqlite":
            return f"sqlite:///{folder}/states.db"
        case "delta":
            return f"delta://{folder}/states"
        case "postgresql":
            server = request.getfixturevalue("postgresql")
            return str(server.create_schema(f"verbs{next(_numbers)}"))
        case "mariadb":
            server = request.getfixturevalue("mariadb")
            return str(server.create_database(f"verbs{next(_numbers)}"))
        case _:
            server = request.getfixturevalue("redis_server")
            server.empty()
            return str(server.url(store))


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store with the states words and sales."""
    return filled(store_url(request, request.param, tmp_path))


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with the states words and sales."""
    return filled(store_url(request, request.param, tmp_path))


@pytest.fixture
def sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return filled(store_url(request, "sqlite", tmp_path))


def filled(url: str) -> str:
    words = StateDriver(open_state(url, table="words"))
    words.puts(1, {"cat": 1, "gone": 5, ODD: 9})
    words.puts(2, {"cat": 2, "gone": None})
    sales = StateDriver(open_state(url, table="sales", key=KEY, value=VALUE))
    rows = {PARIS: PARIS_VALUES, ROME: (None,) * len(VALUE)}
    sales.run(1, putting(rows))
    words.close()
    sales.close()
    return url


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command; return its exit code, and what it printed on both streams."""

    def called(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["state", *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return called


def test_ls_lists_every_state_with_its_owner_and_txid(url: str, call: Call) -> None:
    code, out, _ = call("ls", url, "--json")

    found = {each["table"]: each for each in document("state-ls", out)["states"]}
    assert code == 0
    assert {name: each["txid"] for name, each in found.items()} == {"words": 2, "sales": 1}
    assert found["words"]["owner"] == {
        "topology": "topology",
        "component": "component",
        "state": "state",
    }
    assert found["words"]["is_snapshot"] is not url.startswith("redis-map")
    assert found["words"]["rows"] in (None, 3)
    code, out, _ = call("ls", url)
    assert [line.split()[:3] for line in out.splitlines()] == [
        ["TABLE", "OWNER", "TXID"],
        *(
            [each, "topology.component.state", str(found[each]["txid"])]
            for each in ("sales", "words")
        ),
    ]


def test_a_released_state_and_a_damaged_one_are_listed_as_such(sqlite: str, call: Call) -> None:
    words = open_state(sqlite, table="words").open()
    words.claim(release(2))
    words.close()
    with sqlite3.connect(sqlite.removeprefix("sqlite:///")) as database:
        database.execute("UPDATE txtopo_ledger SET declaration = 'x' WHERE state = 'sales'")
    database.close()

    code, out, _ = call("ls", sqlite, "--json")

    found = {each["table"]: each for each in document("state-ls", out)["states"]}
    assert code == 0
    assert (found["words"]["owner"], found["words"]["txid"]) == (None, 2)
    assert "cannot be read from its store" in found["sales"]["error"]
    _, out, err = call("ls", sqlite)
    assert "released" in out
    assert "sales: the columns of state 'sales' cannot be read" in err


def test_show_has_ledger_columns_and_size(url: str, call: Call) -> None:
    code, out, err = call("show", url, "--table", "sales", "--json")

    shown = document("state-show", out)
    assert code == 0
    assert shown["ledger"]["txid"] == 1
    assert shown["key"] == [{"name": "city", "type": "string"}, {"name": "day", "type": "date"}]
    assert [each["name"] for each in shown["value"]] == list(VALUE.names)
    assert ("no snapshots" in err) is url.startswith("redis-map")
    code, out, _ = call("show", url, "--table", "sales")
    assert "city string, day date" in out


def test_show_has_the_columns_that_readers_see(tmp_path: Path, call: Call) -> None:
    url = f"sqlite:///{tmp_path}/means.db"
    fields = Fields("amount_sum double, amount_count long, n long")
    aggregates = (*Mean("amount").columns("amount").values(), Count())
    state = open_state(url, table="means").with_columns(Fields("key string"), fields, aggregates)
    driver = StateDriver(state)
    driver.merge(1, [("a", 9.0, 2, 2)])
    driver.close()

    shown = document("state-show", call("show", url, "--json")[1])
    got = document("state-get", call("get", url, "a", "--json")[1])

    assert [each["name"] for each in shown["value"]] == ["amount", "n"]
    assert got["value"] == {"amount": 4.5, "n": 2}


def test_get_says_whether_a_state_of_keys_alone_has_a_key(tmp_path: Path, call: Call) -> None:
    url = f"sqlite:///{tmp_path}/keys.db"
    driver = StateDriver(open_state(url, table="keys", value=Fields()))
    driver.run(1, putting({"cat": True}))
    driver.close()

    code, out, err = call("get", url, "cat")
    assert code == 0
    assert "keeps only keys, has key cat after txid 1" in out + err
    assert document("state-get", call("get", url, "cat", "--json")[1])["value"] == {}
    assert call("get", url, "dog")[0] == 1


def test_get_types_a_key_by_the_declaration(url: str, call: Call) -> None:
    for key in (["Paris", "2026-01-31"], ['["Paris", "2026-01-31"]']):
        code, out, _ = call("get", url, *key, "--table", "sales", "--json")

        found = document("state-get", out)
        assert code == 0
        assert found["value"] == PARIS_JSON
        assert found["key"] == {"city": "Paris", "day": "2026-01-31"}
        assert found["txid"] == 1


def test_a_missing_or_deleted_key_is_said_and_exits_with_1(url: str, call: Call) -> None:
    for key in ("cow", "gone"):
        code, out, err = call("get", url, key, "--table", "words")
        assert (code, out) == (FAILED, "")
        assert f"state 'words' has no key {key} after txid 2" in err
        code, out, _ = call("get", url, key, "--table", "words", "--json")
        assert code == FAILED
        assert document("state-get", out)["found"] is False


def test_a_value_of_null_is_no_missing_key(url: str, call: Call) -> None:
    code, out, _ = call("get", url, "Rome", "0001-01-01", "--table", "sales", "--json")

    assert code == 0
    assert set(document("state-get", out)["value"].values()) == {None}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (
            ["Paris"],
            "a key of this state has 2 values; got 1: 'Paris'; expected city string, day date",
        ),
        (["a", "b", "c"], "has 2 values; got 3"),
        (["Paris", "31.1.2026"], "expected a date, such as 2026-01-31"),
        (['["Paris", null]'], "key column 'day' is of type date"),
        (['["Paris"]'], "has 2 values; got 1"),
        (["[" * 100_000], "has 2 values; got 1"),
    ],
)
def test_a_key_of_another_type_is_a_wrong_call(
    sqlite: str, call: Call, key: list[str], said: str
) -> None:
    code, out, err = call("get", sqlite, "--table", "sales", *key)

    assert (code, out) == (WRONG_CALL, "")
    assert said in err


def test_no_key_or_value_reaches_the_terminal_as_it_is(url: str, call: Call) -> None:
    printed = [
        call("get", url, "--table", "words", ODD),
        call("get", url, "--table", "words", ODD + "x"),
        call("get", url, "--table", "words", ODD, "--json"),
        call("get", url, "--table", "sales", "Paris", "2026-01-31"),
    ]

    for _, out, err in printed:
        assert all(each.isprintable() or each == "\n" for each in out + err)


def test_the_state_may_be_left_out_where_there_is_one_only(sqlite: str, call: Call) -> None:
    code, _, err = call("show", sqlite)
    assert code == WRONG_CALL
    assert "the store holds sales, words" in err
    code, _, err = call("show", sqlite, "--table", "word")
    assert code == WRONG_CALL
    assert "did you mean 'words'?" in err


def rows_of(path: Path) -> Iterator[dict[str, object]]:
    table = pa.parquet.read_table(path)
    yield from table.sort_by("city").to_pylist()


def test_parquet_has_every_value_with_its_type_and_the_txid(
    url: str, call: Call, tmp_path: Path
) -> None:
    file = tmp_path / "sales.parquet"

    code, out, _ = call("export", url, file, "--table", "sales", "--json")

    assert code == 0
    assert document("state-export", out) == {
        "table": "sales",
        "file": str(file),
        "format": "parquet",
        "rows": 2,
        "txid": 1,
    }
    paris, rome = rows_of(file)
    assert [paris[name] for name in KEY.names] == list(PARIS)
    written = dict(zip(VALUE.names, PARIS_VALUES, strict=True))
    assert {name: paris[name] for name in written} | {"note": None} == written | {"note": None}
    assert json.loads(str(paris["note"])) == written["note"]
    assert all(rome[name] is None for name in VALUE.names)
    assert (pa.parquet.read_schema(file).metadata or {})[b"txid"] == b"1"


def test_json_lines_have_every_value(url: str, call: Call, tmp_path: Path) -> None:
    file = tmp_path / "sales.jsonl"

    code, out, _ = call("export", url, file, "--table", "sales")

    assert (code, out) == (0, f"2 rows of state 'sales' after txid 1 are in '{file}'\n")
    rows = {row["city"]: row for row in map(json.loads, file.read_text().splitlines())}
    assert rows["Paris"] == {"city": "Paris", "day": "2026-01-31", **PARIS_JSON}
    assert rows["Rome"] == {"city": "Rome", "day": "0001-01-01", **dict.fromkeys(VALUE.names)}


def test_csv_has_every_value_and_tells_null_from_empty_text(
    url: str, call: Call, tmp_path: Path
) -> None:
    code, _, _ = call("export", url, tmp_path / "sales.csv", "--table", "sales")

    assert code == 0
    with (tmp_path / "sales.csv").open(newline="") as file:
        heading, *rows = csv.reader(file)
    assert heading == [*KEY.names, *VALUE.names]
    (paris,) = (row for row in rows if row[0] == "Paris")
    assert decimal.Decimal(paris[2]) == PARIS_VALUES[0]
    assert datetime.datetime.fromisoformat(paris[3]) == PARIS_VALUES[1]
    assert datetime.datetime.fromisoformat(paris[4]) == PARIS_VALUES[2]
    assert paris[5] == "AP8="
    assert json.loads(paris[6]) == PARIS_VALUES[4]
    assert (float(paris[7]), paris[8:]) == (0.1, ['a,"b\né', "true", str(2**63 - 1)])
    assert '"Rome",0001-01-01,,,' in (tmp_path / "sales.csv").read_text()


def test_an_export_is_of_one_snapshot(sqlite: str, tmp_path: Path) -> None:
    """A batch that is committed while it is written is not in it."""
    words = StateDriver(open_state(sqlite, table="words"))
    with open_state(sqlite, table="words").reader() as reader:
        words.puts(3, {"cat": 3, "new": 1})
        assert export(reader, tmp_path / "words.jsonl", "jsonl", force=False) == 2
    words.close()

    rows = [json.loads(line) for line in (tmp_path / "words.jsonl").read_text().splitlines()]
    assert {row["key"]: row["value"] for row in rows} == {"cat": 2, ODD: 9}


def test_an_export_holds_some_rows_at_a_time(sqlite: str, tmp_path: Path, call: Call) -> None:
    many = StateDriver(open_state(sqlite, table="many"))
    many.puts(1, {f"{n:06}": n for n in range(25_000)})
    many.close()

    with open_state(sqlite, table="many").reader() as reader:
        sizes = [batch.num_rows for batch in reader.to_batches()]
    for suffix in ("parquet", "csv", "jsonl"):
        assert call("export", sqlite, tmp_path / f"many.{suffix}", "--table", "many")[0] == 0

    assert sizes == [10_000, 10_000, 5_000]
    assert pa.parquet.read_table(tmp_path / "many.parquet").num_rows == 25_000
    assert len((tmp_path / "many.csv").read_text().splitlines()) == 25_001
    assert len((tmp_path / "many.jsonl").read_text().splitlines()) == 25_000


def test_a_file_is_not_replaced_unless_forced(sqlite: str, call: Call, tmp_path: Path) -> None:
    file, link = tmp_path / "words.csv", tmp_path / "link.csv"
    file.write_text("mine")
    link.symlink_to(file)

    for target in (file, link):
        code, _, err = call("export", sqlite, target, "--table", "words")
        assert code == WRONG_CALL
        assert "already exists; choose another name, or use --force" in err
    assert file.read_text() == "mine"
    assert call("export", sqlite, link, "--table", "words", "--force")[0] == 0
    assert link.is_symlink()
    assert "cat" in file.read_text()
    assert not list(tmp_path.glob(".*.part"))


def test_an_export_that_fails_leaves_nothing(sqlite: str, call: Call, tmp_path: Path) -> None:
    old = tmp_path / "sales.jsonl"
    old.write_text("mine")
    with sqlite3.connect(sqlite.removeprefix("sqlite:///")) as database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute("UPDATE sales SET note = 'no json' WHERE city = 'Paris'")
    database.close()

    code, _, err = call("export", sqlite, old, "--table", "sales", "--force")

    assert code != 0
    assert err.startswith("txtopo: ")
    assert old.read_text() == "mine"
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_a_full_disk_is_said(sqlite: str, call: Call, form: str) -> None:
    code, out, err = call("export", sqlite, "/dev/full", "--table", "words", "--format", form)

    assert (code, out) == (FAILED, "")
    assert err.startswith("txtopo: cannot write '/dev/full': No space left on device\n")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_folder_that_takes_no_file_is_said(sqlite: str, call: Call, tmp_path: Path) -> None:
    code, _, err = call("export", sqlite, tmp_path / "no" / "words.csv", "--table", "words")

    assert code == FAILED
    assert "No such file or directory" in err
    code, _, err = call("export", sqlite, "/proc/words.csv", "--table", "words")
    assert code == FAILED
    assert "cannot write '/proc/words.csv'" in err
    code, _, err = call("export", sqlite, tmp_path, "--table", "words", "--format", "csv")
    assert code == FAILED
    assert "Is a directory" in err


def test_a_suffix_that_names_no_format_is_a_wrong_call(
    sqlite: str, call: Call, tmp_path: Path
) -> None:
    code, _, err = call("export", sqlite, tmp_path / "words.xlsx", "--table", "words")

    assert code == WRONG_CALL
    assert ".parquet, .csv, .jsonl, .ndjson" in err


def test_a_query_reads_a_view(database: str, call: Call) -> None:
    quoted = "`key`" if database.startswith("m") else '"key"'
    statement = f"SELECT {quoted}, value FROM words_view ORDER BY value"

    code, out, _ = call("query", database, statement, "--json")

    assert code == 0
    assert document("state-query", out) == {
        "columns": ["key", "value"],
        "rows": [["cat", 2], [ODD, 9]],
        "complete": True,
    }
    code, out, err = call("query", database, statement, "--limit", 1)
    assert (code, out) == (0, "KEY  VALUE\ncat  2\n")
    assert "these are the first 1 rows" in err


WRITES = [
    "INSERT INTO words_view VALUES ('x', 1)",
    "DELETE FROM words",
    "WITH x AS (SELECT 1) DELETE FROM words",
    "WITH x AS (SELECT 1) DELETE FROM words RETURNING *",
    "WITH x AS (DELETE FROM words RETURNING *) SELECT * FROM x",
    "SELECT 1; DELETE FROM words",
    "SELECT 1; COMMIT; DELETE FROM words",
    "DROP TABLE words",
    "CREATE TABLE evil (a int)",
    "SELECT * INTO evil FROM words",
    "ATTACH 'evil' AS evil",
    "PRAGMA user_version = 7",
    "COPY words TO PROGRAM 'touch evil'",
    "COPY words TO '/evil'",
    "SELECT 1 INTO OUTFILE 'evil'",
    "SELECT 1 INTO/**/DUMPFILE 'evil'",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "SET GLOBAL max_connections = 1",
    "/*!50000 SET GLOBAL max_connections = 1 */",
    "/* SELECT */ DELETE FROM words",
    " -- SELECT\nDELETE FROM words",
    "SELECT load_extension('evil')",
    "VACUUM INTO 'evil'",
    "EXPLAIN ANALYZE DELETE FROM words",
    "SELECT 1\0; DELETE FROM words",
    "",
]


def test_no_query_changes_anything(
    database: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    for statement in WRITES:
        code, out, err = call("query", database, statement)

        assert (code, out) == (WRONG_CALL, ""), statement
        assert err.startswith("txtopo: "), statement
        with open_state(database, table="words").reader() as reader:
            assert dict(reader.items()) == {"cat": 2, ODD: 9}, statement
        assert not (tmp_path / "evil").exists(), statement


def test_a_function_that_writes_is_refused(database: str, call: Call) -> None:
    import sqlalchemy as sa

    if database.startswith("sqlite"):
        pytest.skip("SQLite has no functions of users")
    body = "LANGUAGE sql AS 'DELETE FROM words RETURNING 1'"
    if database.startswith("m"):
        body = "MODIFIES SQL DATA BEGIN DELETE FROM words; RETURN 1; END"
    engine = sa.create_engine(database)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE FUNCTION wipe() RETURNS int {body}")
    engine.dispose()

    code, _, err = call("query", database, "SELECT wipe()")

    assert code == WRONG_CALL
    assert "in a read-only transaction" in err.replace("READ ONLY", "read-only")
    with open_state(database, table="words").reader() as reader:
        assert reader.get("cat") == 2


def test_a_long_query_is_stopped(database: str, call: Call) -> None:
    endless = {
        "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT count(*) FROM n",
        "postgresql": "SELECT pg_sleep(3600)",
        "mariadb": "SELECT SLEEP(3600)",
    }

    scheme = database.partition(":")[0].partition("+")[0]
    code, _, err = call("query", database, endless[scheme], "--timeout", "0.2")

    assert code == WRONG_CALL
    assert "the query took longer than 0.2 s and was stopped" in err


def test_a_huge_answer_is_cut_or_refused(database: str, call: Call) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    code, out, _ = call("query", database, endless, "--limit", 3, "--json")
    assert code == 0
    assert document("state-query", out)["rows"] == [[1], [2], [3]]
    if not database.startswith("mariadb"):  # where it is NULL beyond max_allowed_packet
        large = "repeat('x', 100000000)" if "postgres" in database else "hex(zeroblob(100000000))"
        code, _, err = call("query", database, f"SELECT {large}")
        assert code == WRONG_CALL
        assert "too large" in err or "too big" in err


def test_a_query_leaves_no_lock_and_no_setting_behind(database: str, call: Call) -> None:
    call("query", database, "SELECT * FROM words")

    words = StateDriver(open_state(database, table="words"))
    words.puts(3, {"cat": 3})
    assert words.contents()["cat"] == 3
    words.close()


def test_a_store_without_queries_says_what_to_use(tmp_path: Path, call: Call) -> None:
    code, _, err = call("query", f"delta://{tmp_path}", "SELECT 1")

    assert code == WRONG_CALL
    assert "txtopo state export" in err


def test_the_url_may_come_from_the_environment(
    sqlite: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE", sqlite)

    code, out, _ = call("get", "env:STORE", "cat", "--table", "words")

    assert (code, out) == (0, "value  2\n")
    code, _, err = call("ls", "env:NOTHING")
    assert code == WRONG_CALL
    assert "no environment variable 'NOTHING'" in err


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("counts.db", WRONG_CALL, "write 'sqlite:///counts.db'"),
        ("postgre://u:hunter2@127.0.0.1/d", WRONG_CALL, "did you mean 'postgresql'?"),
        ("sqlite:counts.db", WRONG_CALL, "three slashes before the path of a file"),
        ("memory:", WRONG_CALL, "is in the memory of another process"),
        ("postgresql://u:hunter2@127.0.0.1:1/d", UNREACHABLE, "u:***@127.0.0.1:1/d"),
        ("redis://u:hunter2@127.0.0.1:1/0", UNREACHABLE, "u:***@127.0.0.1:1/0"),
    ],
)
def test_a_url_that_leads_nowhere_is_said_without_its_password(
    call: Call, url: str, code: int, said: str
) -> None:
    found, out, err = call("ls", url)

    assert (found, out) == (code, "")
    assert said in err
    assert "hunter2" not in err


def test_an_argument_too_many_shows_no_password(call: Call) -> None:
    for arguments in (["ls", "a", "postgresql://u:hunter2@h/d"], ["postgresql://u:hunter2@h/d"]):
        code, out, err = call(*arguments)
        assert code == WRONG_CALL
        assert "hunter2" not in out + err


def test_a_store_with_nothing_in_it_says_so_and_is_not_made(tmp_path: Path, call: Call) -> None:
    for url in (f"sqlite:///{tmp_path}/no.db", f"delta://{tmp_path}/no"):
        code, out, _ = call("ls", url)
        assert code == 0
        assert "holds no state; has its topology run yet?" in out
    assert call("query", f"sqlite:///{tmp_path}/no.db", "SELECT 1")[0] == WRONG_CALL
    assert not list(tmp_path.iterdir())


def test_a_table_of_another_program_is_no_state(sqlite: str, call: Call) -> None:
    with sqlite3.connect(sqlite.removeprefix("sqlite:///")) as database:
        database.execute("CREATE TABLE theirs (a)")
    database.close()

    assert "theirs" not in call("ls", sqlite)[1]
    code, _, err = call("get", sqlite, "a", "--table", "theirs")
    assert code == WRONG_CALL
    assert "the store holds no state 'theirs'" in err


@pytest.mark.parametrize("store", STORES)
def test_a_size_is_that_of_the_rows(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """PostgreSQL and MariaDB only estimate it, after an analysis of their own."""
    url = filled(store_url(request, store, tmp_path))

    with open_state(url, table="words").reader() as reader:
        size = reader.size()

    known = store in ("sqlite", "delta", "redis")
    assert size.rows == (3 if known else size.rows)
    assert (size.bytes is None) is (store in ("sqlite", "redis-map"))
    assert size.bytes is None or size.bytes > 100


@pytest.mark.service("redis")
def test_a_store_that_fails_during_an_export_is_not_taken_for_the_file(
    redis_server: RedisServer, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is an OSError as well. A large state of Redis changes while it is read."""
    url = redis_server.empty()
    many = StateDriver(open_state(url, table="many"))
    many.puts(1, {f"{n:06}": n for n in range(10_001)})

    def written_meanwhile(*arguments: Any, **options: Any) -> int:
        many.puts(2, {"new": 1})
        return export(*arguments, **options)

    monkeypatch.setattr("txtopo.command.states.export", written_meanwhile)
    code, _, err = call("export", url, tmp_path / "many.csv")
    many.close()

    assert code == UNREACHABLE
    assert "was written while it was being read" in err
    assert not list(tmp_path.iterdir())
