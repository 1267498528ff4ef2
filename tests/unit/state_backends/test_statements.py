"""Statements of users in the transaction of a txid, in each SQL database."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from state_backends.sql.backend import SqlBackend
from txtopo.errors import (
    PromiseError,
    StatementFailed,
    StateUsageError,
    StoreDamagedError,
    ValueRefusedError,
)
from txtopo.state import StateHandle, StateTransaction, open_state
from txtopo.state.commit import commit_all_resolved
from txtopo.state.statements import StoredUndo, undos_from_text, undos_to_text
from txtopo.testing.conformance.driver import StateDriver

ADD = "INSERT INTO notes (txid, place, note) VALUES (:txid, :place, :note)"
TAKE_BACK = "DELETE FROM notes WHERE txid = :txid AND place = :place"
Body = Callable[[StateTransaction], Any]
numbers = count()


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.service("postgresql")),
        pytest.param("mariadb", marks=pytest.mark.service("mariadb")),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with a table of a user's."""
    url = f"sqlite:///{tmp_path}/states.db"
    if request.param != "sqlite":
        server = request.getfixturevalue(request.param)
        url = str(server.create_schema(f"statements{next(numbers)}"))
    run(url, "CREATE TABLE notes (txid BIGINT, place BIGINT, note VARCHAR(100))")
    return url


def run(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Execute statements without txtopo; return what the last one selects."""
    engine = sa.create_engine(url)
    try:
        with engine.begin() as connection:
            found = [connection.execute(sa.text(each)) for each in statements][-1]
            return [tuple(row) for row in found] if found.returns_rows else []
    finally:
        engine.dispose()


def notes(url: str) -> list[tuple[Any, ...]]:
    """Return the rows of the user's table."""
    return run(url, "SELECT txid, place, note FROM notes ORDER BY txid, place, note")


@pytest.fixture
def state(url: str) -> Iterator[StateDriver]:
    """An opaque state, claimed."""
    driver = StateDriver(open_state(url, table="counts"))
    yield driver
    driver.close()


def adding(*texts: str, undo: str | None = TAKE_BACK) -> Body:
    """Return the body of a committer that counts texts, and writes them down."""

    def body(transaction: StateTransaction) -> None:
        for place, text in enumerate(texts):
            transaction.update(text, lambda value: (value or 0) + 1)
            transaction.execute(ADD, {"place": place, "note": text}, undo=undo)

    return body


@pytest.mark.rule("txtopo.state.statements", "Rules", 1)
def test_statements_and_rows_of_a_txid_are_there_together_or_not_at_all(
    state: StateDriver, url: str
) -> None:
    state.run(1, adding("a"))

    def failing(transaction: StateTransaction) -> None:
        adding("b")(transaction)
        transaction.execute("INSERT INTO nowhere VALUES (:txid)", undo="DELETE FROM nowhere")

    with pytest.raises(StatementFailed, match=r"refuses a statement of txid 2.*nowhere") as caught:
        state.run(2, failing)
    assert caught.value.txid == 2
    assert state.contents() == {"a": 1}
    assert notes(url) == [(1, 0, "a")]
    state.run(2, adding("b"))
    assert notes(url) == [(1, 0, "a"), (2, 0, "b")]


@pytest.mark.rule("txtopo.state.statements", "Rules", 3)
def test_below_spouts_that_repeat_a_redo_keeps_the_statements(state: StateDriver, url: str) -> None:
    state.repeats = True
    state.run(1, adding("a", undo=None))
    state.run(1, adding("a", undo=None), attempt=1)
    assert notes(url) == [(1, 0, "a")]
    assert state.contents() == {"a": 1}
    with state.backend.snapshot() as snapshot:
        assert snapshot.missing_undo() is not None


@pytest.mark.rule("txtopo.state.statements", "Rules", 4)
def test_below_an_opaque_spout_a_redo_takes_back_what_the_earlier_attempt_did(
    state: StateDriver, url: str
) -> None:
    state.run(1, adding("before"))
    state.run(2, adding("a", "b"))
    state.run(2, adding("c"), attempt=1)
    assert notes(url) == [(1, 0, "before"), (2, 0, "c")]
    assert state.contents() == {"before": 1, "c": 1}


@pytest.mark.rule("txtopo.state.statements", "Rules", 5)
def test_a_redo_without_statements_takes_them_back_as_well(state: StateDriver, url: str) -> None:
    state.run(1, adding("a", "b"))
    state.run(1, lambda _: None, attempt=1)
    assert notes(url) == []
    state.run(1, lambda _: None, attempt=2)
    assert notes(url) == []


@pytest.mark.rule("txtopo.state.statements", "Rules", 6)
def test_a_group_takes_back_all_of_its_txids_the_last_one_first(
    state: StateDriver, url: str
) -> None:
    def last(note: str) -> Body:
        # Each takes back only its own, which it finds only if the later ones are gone.
        undo = (
            "DELETE FROM notes WHERE note = :note "
            "AND txid = (SELECT top FROM (SELECT MAX(txid) AS top FROM notes) AS found)"
        )
        return lambda transaction: transaction.execute(
            "INSERT INTO notes (txid, note) VALUES (:txid, :note)", {"note": note}, undo=undo
        )

    state.run(1, last("before"))
    state.run_group(4, [last("a"), last("b"), last("c")])
    assert [row[0] for row in notes(url)] == [1, 2, 3, 4]  # a member's txid, never the group's
    state.run_group(4, [lambda _: None, lambda _: None, last("d")], attempt=1)
    assert [(row[0], row[2]) for row in notes(url)] == [(1, "before"), (4, "d")]


@pytest.mark.rule("txtopo.state.statements", "Rules", 2)
def test_statements_of_two_states_are_executed_in_the_order_of_their_calls(
    url: str, state: StateDriver
) -> None:
    other = StateDriver(open_state(url, table="totals"), component="other")
    step = "INSERT INTO notes (txid, place, note) SELECT :txid, COUNT(*), :note FROM notes"
    undo = "DELETE FROM notes WHERE txid = :txid"
    found: dict[str, Any] = {}

    def keeping(name: str, between: Body | None = None) -> Body:
        def body(transaction: StateTransaction) -> None:
            transaction.execute(step, {"note": f"{name} 1"}, undo=undo)
            if between is not None:
                between(transaction)
            transaction.execute(step, {"note": f"{name} 2"}, undo=undo)

        return body

    def writes(driver: StateDriver, body: Body) -> Any:
        handle = StateHandle("counts", driver.state.layout(), driver.backend)
        with handle.transaction(driver.attempt(1)) as transaction:
            body(transaction)
        return handle.writes

    found["b"] = None
    first = writes(state, keeping("a", lambda _: found.update(b=writes(other, keeping("b")))))
    pairs = [(other.backend, found["b"]), (state.backend, first)]
    commit_all_resolved(state.attempt(1), pairs)
    assert [row[2] for row in notes(url)] == ["a 1", "b 1", "b 2", "a 2"]
    other.close()


def test_many_sets_of_parameters_are_one_call_and_an_undo_is_executed_as_often_as_it_must(
    state: StateDriver, url: str
) -> None:
    sets = [{"place": place, "note": "x"} for place in range(3)]
    one_undo = "INSERT INTO notes (txid, note) VALUES (:txid, 'taken back')"

    def body(transaction: StateTransaction) -> None:
        transaction.execute(ADD, many=sets, undo=TAKE_BACK)
        transaction.execute(ADD, many=sets, undo=one_undo)
        transaction.execute(ADD, many=[], undo=one_undo)

    state.run(1, body)
    assert len(notes(url)) == 6
    state.run(1, lambda _: None, attempt=1)
    assert notes(url) == [(1, None, "taken back")]


def test_a_statement_of_sqlalchemy_is_executed_and_binds_what_it_names(
    state: StateDriver, url: str
) -> None:
    table = sa.table("notes", *(sa.column(name) for name in ("txid", "place", "note")))
    insert = sa.insert(table).values(
        txid=sa.bindparam("txid"), place=sa.bindparam("place"), note="x"
    )
    state.run(1, lambda each: each.execute(insert, {"place": 7}, undo=TAKE_BACK))
    assert notes(url) == [(1, 7, "x")]
    none = "DELETE FROM notes WHERE txid = :txid"
    state.run(1, lambda each: each.execute(sa.delete(table), undo=none), attempt=1)
    assert notes(url) == []


@pytest.mark.rule("state_backends.sql.backend", "Rules", 6)
def test_a_constraint_that_a_statement_breaks_is_not_a_lock(state: StateDriver, url: str) -> None:
    run(url, "CREATE TABLE once (place INTEGER PRIMARY KEY)")
    once = "INSERT INTO once VALUES (1)"
    undo = "DELETE FROM once"
    state.run(1, lambda each: each.execute(once, undo=undo))
    with pytest.raises(StatementFailed, match="refuses a statement of txid 2"):
        state.run(2, lambda each: each.execute(once, undo=undo))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("COMMIT", "begins with INSERT"),
        ("  -- a note\n ROLLBACK", "begins with INSERT"),
        ("CREATE TABLE more (a INT)", "define tables"),
        ("DELETE FROM notes; COMMIT", "one statement"),
        ("SELECT ';' ; SELECT 1", "one statement"),
        (sa.text("END"), "begins with INSERT"),
        (sa.text("COMMIT").columns(sa.column("a")), "begins with INSERT"),
        (sa.schema.CreateTable(sa.Table("t", sa.MetaData(), sa.Column("a", sa.Integer))), "define"),
        (17, "begins with INSERT"),
    ],
)
def test_what_could_end_the_transaction_is_refused_at_the_call(
    tmp_path: Path, statement: Any, message: str
) -> None:
    state = StateDriver(open_state(f"sqlite:///{tmp_path}/a.db", table="counts"))
    with pytest.raises(StateUsageError, match=message):
        state.run(1, lambda each: each.execute(statement, undo="DELETE FROM notes"))
    assert state.held() is not None
    state.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"parameters": iter([1])}, "are a list_iterator; expected a dictionary"),
        ({"many": iter([])}, "many of .* is a list_iterator; expected a list"),
        ({"parameters": {"place": 1}, "many": []}, "expected one of them"),
        ({"parameters": {"place": [1], "note": "x"}}, "'place' .* is a list; expected None"),
        ({"parameters": {"place": 1}}, "expected note as well"),
        ({"parameters": {"place": 1, "note": "x", "nte": "y"}}, "got nte"),
        ({"parameters": {"txid": 1}}, "expected names other than txid"),
        ({"undo": None}, "has no undo, and its committer is below an opaque spout"),
        ({"undo": sa.text("DELETE FROM notes")}, "is a TextClause; expected a string"),
        ({"undo": "DROP TABLE notes"}, "begins with INSERT"),
        ({"undo": "DELETE FROM notes WHERE txid = :txid::bigint"}, r"expected CAST\(:txid AS"),
        ({"many": [{"place": 1, "note": "x"}, {"place": 1}]}, "have different names; got place"),
    ],
)
def test_bad_arguments_are_refused_at_the_call(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    state = StateDriver(open_state(f"sqlite:///{tmp_path}/a.db", table="counts"))
    given = {"parameters": {"place": 1, "note": "x"}, "undo": TAKE_BACK} | arguments
    if "many" in arguments and "parameters" not in arguments:
        del given["parameters"]
    with pytest.raises(StateUsageError, match=message):
        state.run(1, lambda each: each.execute(ADD, **given))
    state.close()


def test_sets_of_a_statement_of_sqlalchemy_have_the_same_names(tmp_path: Path) -> None:
    """SQLAlchemy would leave a column out that the first set does not have."""
    state = StateDriver(open_state(f"sqlite:///{tmp_path}/a.db", table="counts"))
    insert = sa.insert(sa.table("notes", sa.column("place"), sa.column("note")))
    many: list[dict[str, Any]] = [{"place": 1}, {"place": 2, "note": "lost"}]
    with pytest.raises(StateUsageError, match="have different names; got note, place after place"):
        state.run(1, lambda each: each.execute(insert, many=many, undo="DELETE FROM notes"))
    state.close()


def test_a_statement_that_sqlalchemy_cannot_show_is_an_error_of_the_user(tmp_path: Path) -> None:
    """And not tried again for ever."""
    state = StateDriver(open_state(f"sqlite:///{tmp_path}/a.db", table="counts"))
    table = sa.table("notes", sa.column("place"))
    wrong = sa.update(table).where(table.c.place == sa.bindparam("place"))
    with pytest.raises(StatementFailed, match=r"name 'place' is reserved.*got 'a Update of SQL"):
        state.run(1, lambda each: each.execute(wrong, {"place": 7}, undo="DELETE FROM notes"))
    state.close()


def test_an_undo_that_fails_is_named_as_what_was_stored(state: StateDriver, url: str) -> None:
    run(url, "CREATE TABLE nowhere (txid BIGINT)")
    state.run(1, adding("a", undo="DELETE FROM nowhere WHERE txid = :txid"))
    run(url, "DROP TABLE nowhere")
    with pytest.raises(StatementFailed, match=r"refuses the stored undo of txid 1.*nowhere"):
        state.run(1, adding("a"), attempt=1)
    assert notes(url) == [(1, 0, "a")]


@pytest.mark.service("postgresql")
@pytest.mark.parametrize("code", ["55000", "MY001", "P0001"])
def test_what_a_function_of_the_user_raises_is_an_error_of_the_user(
    postgresql: Any, code: str
) -> None:
    url = str(postgresql.create_schema(f"statements{next(numbers)}"))
    body = f"BEGIN RAISE EXCEPTION 'mine' USING ERRCODE = '{code}'; END"
    run(url, f"CREATE FUNCTION wrong() RETURNS INT LANGUAGE plpgsql AS $$ {body} $$")
    state = StateDriver(open_state(url, table="counts"))
    with pytest.raises(StatementFailed, match="refuses a statement of txid 1: mine"):
        state.run(1, lambda each: each.execute("SELECT wrong()", undo="SELECT 1"))
    state.close()


@pytest.mark.service("mariadb")
def test_an_upsert_of_many_has_parameters_behind_its_values(mariadb: Any) -> None:
    """PyMySQL would make one statement of them, without these parameters."""
    url = str(mariadb.create_schema(f"statements{next(numbers)}"))
    run(url, "CREATE TABLE totals (place BIGINT PRIMARY KEY, total BIGINT)")
    state = StateDriver(open_state(url, table="counts"))
    upsert = (
        "INSERT INTO totals VALUES (:place, :more) ON DUPLICATE KEY UPDATE total = total + :more"
    )
    many = [{"place": 1, "more": 5}, {"place": 2, "more": 6}, {"place": 1, "more": 7}]
    state.run(1, lambda each: each.execute(upsert, many=many, undo="DELETE FROM totals"))
    assert run(url, "SELECT * FROM totals ORDER BY place") == [(1, 12), (2, 6)]
    state.close()


@pytest.mark.service("mariadb")
def test_what_a_trigger_signals_is_an_error_of_the_user(mariadb: Any) -> None:
    url = str(mariadb.create_schema(f"statements{next(numbers)}"))
    signals = "CREATE TRIGGER t BEFORE INSERT ON notes FOR EACH ROW SIGNAL SQLSTATE '45000'"
    run(url, "CREATE TABLE notes (place BIGINT)", signals)
    state = StateDriver(open_state(url, table="counts"))
    with pytest.raises(StatementFailed, match="refuses a statement of txid 1"):
        state.run(1, lambda each: each.execute("INSERT INTO notes VALUES (1)", undo="SELECT 1"))
    twice = "SELECT (SELECT 1 UNION SELECT 2)"
    with pytest.raises(StatementFailed, match="Subquery returns more than 1 row"):
        state.run(1, lambda each: each.execute(twice, undo="SELECT 1"))
    state.close()


@pytest.mark.rule("txtopo.state.backend", "Rules", 10)
def test_a_store_without_statements_refuses_them(tmp_path: Path) -> None:
    state = StateDriver(open_state("memory:", table="counts"))
    with pytest.raises(StateUsageError, match="cannot execute statements; got 'DELETE FROM a'"):
        state.run(1, lambda each: each.execute("DELETE FROM a", undo="DELETE FROM a"))


def test_an_undo_that_the_database_refuses_is_found_before_it_is_stored(
    state: StateDriver, url: str
) -> None:
    state.run(1, adding("a"))
    with pytest.raises(StatementFailed, match=r"refuses the undo of a statement of txid 2.*nots"):
        state.run(2, adding("b", undo="DELETE FROM nots WHERE txid = :txid"))
    assert notes(url) == [(1, 0, "a")]
    state.run(2, adding("c"))
    assert notes(url) == [(1, 0, "a"), (2, 0, "c")]


def test_undos_that_no_ledger_has_room_for_are_refused(tmp_path: Path) -> None:
    state = StateDriver(open_state(f"sqlite:///{tmp_path}/a.db", table="counts"))
    sets = [{"a": "x" * 1_000}] * 5_000
    with pytest.raises(ValueRefusedError, match=r"got 5,\d+,\d+ bytes; expected at most 4,194,304"):
        state.run(1, lambda each: each.execute("SELECT :a", many=sets, undo="SELECT :a"))
    state.close()


def test_a_statement_of_sqlalchemy_may_have_values_of_its_own(state: StateDriver, url: str) -> None:
    text = sa.text("INSERT INTO notes VALUES (:txid, :place, 'x')").bindparams(place=3)
    state.run(1, lambda each: each.execute(text, undo="DELETE FROM notes"))
    assert notes(url) == [(1, 3, "x")]


def test_sqlite_makes_no_null_of_nan(tmp_path: Path) -> None:
    state = StateDriver(open_state(f"sqlite:///{tmp_path}/a.db", table="counts"))
    with pytest.raises(ValueRefusedError, match="NaN"):
        state.run(1, lambda each: each.execute("SELECT :a", {"a": float("nan")}, undo="SELECT 1"))
    state.close()


@pytest.mark.service("postgresql")
def test_a_commit_that_no_parser_sees_is_noticed_before_commit(postgresql: Any) -> None:
    url = str(postgresql.create_schema(f"statements{next(numbers)}"))
    state = StateDriver(open_state(url, table="counts"))
    # For the parser this is two texts: only PostgreSQL knows that E'…' has escapes.
    hidden = r"SELECT E'\''; COMMIT; --'"
    with pytest.raises(PromiseError, match="has ended the transaction"):
        state.run(1, lambda each: each.execute(hidden, undo="SELECT 1"))
    state.close()


@pytest.mark.service("postgresql")
def test_a_constraint_that_is_checked_at_commit_is_an_error_of_the_user(postgresql: Any) -> None:
    url = str(postgresql.create_schema(f"statements{next(numbers)}"))
    run(
        url,
        "CREATE TABLE one (a INT PRIMARY KEY)",
        "CREATE TABLE two (a INT REFERENCES one DEFERRABLE INITIALLY DEFERRED)",
    )
    state = StateDriver(open_state(url, table="counts"))
    wrong = "INSERT INTO two VALUES (1)"
    with pytest.raises(StatementFailed, match="refused COMMIT after statements") as caught:
        state.run(1, lambda each: each.execute(wrong, undo="DELETE FROM two"))
    assert caught.value.txid is None
    assert state.contents() == {}
    state.close()


def test_a_commit_that_sqlite_refuses_leaves_no_transaction_open(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/states.db"
    run(
        url,
        "CREATE TABLE one (a INT PRIMARY KEY)",
        "CREATE TABLE two (a INT REFERENCES one DEFERRABLE INITIALLY DEFERRED)",
        "INSERT INTO one VALUES (1)",
    )
    state = StateDriver(open_state(url, table="counts"))

    def checking(driver: Any, _: object) -> None:
        driver.execute("PRAGMA foreign_keys = ON")

    assert isinstance(state.backend, SqlBackend)
    engine = state.backend._engine
    engine.dispose()
    sa.event.listen(engine, "connect", checking)
    for _ in range(2):
        with pytest.raises(StatementFailed, match="refused COMMIT after statements"):
            state.run(1, lambda each: each.execute("INSERT INTO two VALUES (9)", undo="SELECT 1"))
        run(url, "DELETE FROM two")
    state.run(1, lambda each: each.execute("INSERT INTO two VALUES (1)", undo="SELECT 1"))
    assert run(url, "SELECT * FROM two") == [(1,)]
    state.close()


def test_a_float_of_numpy_is_stored_as_a_float() -> None:
    class Numpys(float):
        def __repr__(self) -> str:
            return f"np.float64({float(self)!r})"

    text = undos_to_text([StoredUndo((7, 0, 0, 1), "SELECT 1", ({"a": Numpys(0.5)},))])
    assert undos_from_text(text, "a state")[0].parameters == ({"a": 0.5},)


def test_parameters_of_an_undo_are_stored_exactly() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    values: Sequence[Any] = (
        *(None, True, 2**70, 0.1, float("inf"), "ü\0\ud800", b"\0\xff"),
        *(decimal.Decimal("1.50"), datetime.datetime(2026, 1, 2, 3, tzinfo=zone)),
        *(datetime.date(2026, 1, 2), datetime.time(3, 4)),
    )
    undo = StoredUndo(
        (7, 0, 0, 1), "SELECT 1", ({str(at): each for at, each in enumerate(values)},)
    )
    text = undos_to_text([undo])
    assert text is not None
    (read,) = undos_from_text(text, "a state")
    assert read == undo
    assert [type(each) for each in read.parameters[0].values()] == [type(one) for one in values]
    with pytest.raises(StoreDamagedError, match="cannot be read"):
        undos_from_text(text[:-1], "a state")
