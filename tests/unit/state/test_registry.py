"""How a state is named, found and passed on."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from txtopo import Fields
from txtopo.errors import StateUsageError, StoreUnavailable, TopologyError
from txtopo.plugins.stores import StateBackend, StateTable, redacted_url
from txtopo.state import Count, State, open_state, register_backend


def never_opened(url: str, table: StateTable) -> StateBackend:
    raise AssertionError(url)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("cassandra://user:secret@host/0", "known are .*memory.*redis.*sqlite"),
        ("", "cannot read the URL"),
        (None, "cannot read the URL"),
        (" sqlite:///counts.db", "without spaces around it"),
        ("oracle+driver://user:secret@host/db", "no state backend for 'oracle'"),
    ],
)
def test_a_url_without_a_backend_is_refused(url: Any, words: str) -> None:
    with pytest.raises(TopologyError, match=words) as caught:
        open_state(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("posgresql://user:secret@host/db", r"'posgresql'; did you mean 'postgresql'\?"),
        ("sqllite:///x.db", r"'sqllite'; did you mean 'sqlite'\?"),
        ("pg://user:secret@host/db", r"did you mean 'postgresql'\?"),
        ("jdbc:postgresql://host/db?password=secret", r"write the URL without 'jdbc:', as in"),
        ("file:/data/x", r"write 'sqlite:///path' .* 'delta:///path' for a folder"),
        ("mssql://user:secret@host/db", "'mssql'; known are"),
        ("counts.db", r"write 'sqlite:///counts.db' .*, or 'delta:counts.db'"),
        (Path("data/counts.db"), r"write 'sqlite:///data/counts.db'"),
        ("C:\\data\\x.db", r"a path is not a URL; write 'sqlite:///C:/data/x.db'"),
        ("//user:secret@host/db", r"a path is not a URL"),
        ("memory", r"write 'memory:'"),
        ("sqlite://counts.db", r"three slashes; got 'sqlite://counts.db'; write 'sqlite:///counts"),
        ("sqlite://user:secret@host/x", "three slashes"),
        ("sqlite:counts.db", "three slashes before the path of a file"),
        ("postgresql+asyncpg://user:secret@host/db", "'postgresql[+]asyncpg'; write 'postgresql'"),
    ],
)
def test_a_url_that_is_almost_right_is_answered_with_what_to_write(url: Any, words: str) -> None:
    with pytest.raises(TopologyError, match=words) as caught:
        open_state(url)
    assert "secret" not in str(caught.value)


def test_an_unknown_scheme_is_answered_with_the_extras_to_install() -> None:
    with pytest.raises(TopologyError, match=r"postgresql needs pip install 'txtopo\[postgres\]'"):
        open_state("cassandra://host/0")


@pytest.mark.parametrize(
    "url", ["postgres://h/db", "PostgreSQL://h/db", "postgresql+psycopg://h/db"]
)
def test_a_scheme_has_several_spellings(url: str) -> None:
    assert open_state(url).location.startswith("postgresql:")


def test_a_state_without_a_name_is_known_by_its_url_as_the_user_wrote_it() -> None:
    with pytest.raises(TopologyError, match=r"^state 'sqlite:///counts.db' has two columns 'n'"):
        open_state("sqlite:///counts.db", key=Fields("n long"), value=Fields("n long"))
    with pytest.raises(
        TopologyError, match=r"got 'word string'; write e.g. key=Fields\('key long'\)"
    ):
        open_state("memory:", key="word string")  # type: ignore[arg-type]
    copy = pickle.loads(pickle.dumps(open_state("sqlite:///counts.db")))
    assert repr(copy) == "State('sqlite:///counts.db', opaque, table=None)"
    assert repr(open_state("memory:", table="t")) == "State('memory:', opaque, table='t')"


def test_a_store_is_named_by_the_url_that_the_user_wrote() -> None:
    """Without the driver that it is opened with."""
    state = open_state("postgresql://ann:secret@localhost:1/db", table="counts")

    with (
        pytest.raises(
            StoreUnavailable, match=r"'counts' in postgresql://ann:\*\*\*@localhost:1/db:"
        ),
        state.reader(),
    ):
        pass


def test_a_password_in_the_url_of_a_message_is_hidden() -> None:
    with pytest.raises(TopologyError, match=r"^state 'postgresql://ann:\*\*\*@host/db' has two"):
        open_state("postgresql://ann:secret@host/db", key=Fields("n long"), value=Fields("n long"))


def test_a_table_is_named_by_a_text() -> None:
    with pytest.raises(TopologyError, match="table of a state is of the wrong type; got 7"):
        open_state("memory:", table=7)  # type: ignore[arg-type]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(TopologyError, match="expected opaque or transactional"):
        open_state("memory:", kind="exact")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["txid", "deleted", "prev_txid", "PREV_x", "TXID"])
def test_columns_for_bookkeeping_are_refused(name: str) -> None:
    for columns in ({"key": Fields(f"{name} string")}, {"value": Fields(f"{name} long")}):
        with pytest.raises(TopologyError, match="bookkeeping"):
            open_state("memory:", **columns)  # type: ignore[arg-type]


def test_columns_must_be_there_and_distinct() -> None:
    with pytest.raises(TopologyError, match="no key columns"):
        open_state("memory:", key=Fields())
    with pytest.raises(TopologyError, match="two columns 'n'"):
        open_state("memory:", key=Fields("n long"), value=Fields("n long"))
    with pytest.raises(TopologyError, match="one for each column"):
        open_state("memory:").with_columns(Fields("k long"), Fields("a long, b long"), (Count(),))


def test_the_topology_names_the_table_unless_the_user_did() -> None:
    state = open_state("memory:")

    assert state.named("counts").layout().name == "counts"
    assert open_state("memory:", table="mine").named("counts").table == "mine"
    with pytest.raises(TopologyError, match="has no table"):
        state.open()


def test_a_password_is_hidden_but_kept() -> None:
    state = open_state("postgresql://user:sec/ret@host/db", table="counts")
    copy = pickle.loads(pickle.dumps(state))

    assert "sec" not in repr(state).replace("'sec", "")
    assert copy == state
    assert copy.url == state.url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://user:word@host/db", "postgresql://user:***@host/db"),
        ("redis://:word@host:6379/0", "redis://:***@host:6379/0"),
        ("redis://:wo:rd@host:6379/0", "redis://:***@host:6379/0"),
        ("redis://user:w/o@r?d@host/0", "redis://user:***@host/0"),
        (
            "redis://host/0?username=a&password=word&b=1",
            "redis://host/0?username=a&password=***&b=1",
        ),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("sqlite:///folder/a:b.db", "sqlite:///folder/a:b.db"),
        ("s3://bucket/counts", "s3://bucket/counts"),
    ],
)
def test_only_the_password_of_a_url_is_hidden(url: str, shown: str) -> None:
    assert redacted_url(url) == shown


def test_a_program_brings_its_own_backend() -> None:
    register_backend("test-store", never_opened)
    state = open_state("test-store+driver://x", table="counts")

    with pytest.raises(TopologyError, match=r"got AssertionError: test-store\+driver"):
        pickle.loads(pickle.dumps(state)).open()
    assert state.shared_by_processes
    with pytest.raises(TopologyError, match="bad URL scheme"):
        register_backend("a+b", never_opened)


def test_a_reader_must_be_open() -> None:
    reader = open_state("memory:", table="counts").reader()

    with pytest.raises(StateUsageError, match="with statement"):
        reader.get("a")


def test_a_plug_in_that_is_installed_later_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found is kept; what was missing is looked for again."""
    with pytest.raises(TopologyError, match="no state backend for 'later'"):
        open_state("later:")
    folder = tmp_path / "later-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: later\nVersion: 1.0\n")
    declared = "[txtopo.state_backends]\nLater = state_backends.memory:open_backend\n"
    (folder / "entry_points.txt").write_text(declared)
    monkeypatch.syspath_prepend(str(tmp_path))

    assert open_state("later:", table="counts").open().__class__.__name__ == "MemoryBackend"


def test_states_of_one_url_and_table_are_equal() -> None:
    """That is how two committers on one table are found."""
    first = open_state("memory://shared", table="counts")

    assert first == open_state("memory://shared", table="counts")
    assert first != State(first.url, "opaque", "other")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("sqlite:///a.db", f"sqlite:///{Path.cwd()}/a.db", True),
        ("sqlite:///a.db", "sqlite+pysqlite:///x/../a.db", True),
        ("sqlite:///a.db", "sqlite:///b.db", False),
        ("postgres://host/a", "postgresql+psycopg://host/a", True),
        ("postgresql://host/a", "postgresql://host/b", False),
        ("postgresql:///a?host=/one", "postgresql:///a?host=/two", False),
        ("memory://a", "memory://b", False),
    ],
)
def test_two_spellings_of_one_store_are_one_location(one: str, other: str, same: bool) -> None:
    assert (State(one).location == State(other).location) is same


def test_a_mode_that_nobody_knows_or_the_store_has_not_is_refused() -> None:
    with pytest.raises(TopologyError, match="unknown mode of state; got 'tree'"):
        open_state("memory:", mode="tree")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="cannot keep a state in mode 'log'"):
        open_state("memory:", table="counts", mode="log").open()


def test_keys_alone_are_no_log_and_a_state_has_a_key() -> None:
    with pytest.raises(TopologyError, match="keeps only keys and cannot be a log"):
        open_state("memory:", mode="log", value=Fields())
    with pytest.raises(TopologyError, match="has no key columns"):
        open_state("memory:", key=Fields(), value=Fields())
    assert open_state("memory:", value=Fields()).value == Fields()
