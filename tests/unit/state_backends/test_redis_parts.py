"""Many keys are read and made into texts part by part, and written in one transaction."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from state_backends.redis import backend as redis_backend
from tests.harness.servers.redis import RedisServer
from txtopo import Count, Fields
from txtopo.errors import ValueRefusedError
from txtopo.state import State, open_state
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.service("redis")


@pytest.fixture
def state(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> State:
    monkeypatch.setattr(redis_backend, "_KEYS_PER_COMMAND", 3)
    return open_state(redis_server.empty(), table="counts")


@pytest.fixture
def collecting() -> Iterator[None]:
    yield
    gc.enable()


def test_a_redo_takes_back_what_is_in_any_part(state: State) -> None:
    writer = StateDriver(state)
    letters = "abcdefghij"
    before = dict.fromkeys(letters, 1)
    writer.puts(1, before)
    writer.puts(2, dict.fromkeys(letters, 2) | {"a": None, "e": None, "new": 2})

    writer.puts(2, {"j": 3, "k": 3}, attempt=1)

    assert writer.contents() == before | {"j": 3, "k": 3}


def test_tombstones_of_any_part_are_removed(state: State) -> None:
    writer = StateDriver(state)
    writer.puts(1, dict.fromkeys("abcdefg", 1))
    writer.puts(2, dict.fromkeys("abcdef"))
    writer.puts(3, {"a": 3, "h": 3})

    with writer.backend.snapshot() as snapshot:
        assert {key: row.deleted for key, row in snapshot.items()} == {
            ("a",): False,
            ("g",): False,
            ("h",): False,
        }


def test_partials_of_each_part_are_merged(state: State) -> None:
    columns = state.with_columns(Fields("key string"), Fields("count long"), (Count(),))
    writer = StateDriver(columns)
    writer.merge(1, [(letter, 1) for letter in "abcdefg"])
    writer.merge(2, [(letter, 10) for letter in "bcdefgh"])

    assert writer.contents() == {"a": 1, "h": 10, **dict.fromkeys("bcdefg", 11)}


@pytest.mark.usefixtures("collecting")
@pytest.mark.parametrize("enabled", [True, False])
def test_a_commit_leaves_the_collector_as_it_was(state: State, enabled: bool) -> None:
    columns = state.with_columns(Fields("key string"), Fields("count long"), (Count(),))
    writer = StateDriver(columns)
    if not enabled:
        gc.disable()

    writer.merge(1, [("a", 2**63 - 1)])
    assert gc.isenabled() is enabled
    with pytest.raises(ValueRefusedError, match="a long holds") as refused:
        writer.merge(2, [(letter, 1) for letter in "abcdefg"])

    assert gc.isenabled() is enabled
    assert refused.value.__notes__ == [
        "while a batch was combined with key ('a',) of state 'counts'"
    ]
