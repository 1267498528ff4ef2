"""The reference: what memory does, every backend does."""

from __future__ import annotations

import pickle
import re

import pytest

from state_backends.memory import MemoryBackend
from tests.harness.chance import most, times
from tests.unit.test_layout import ROOT
from txtopo.errors import TopologyError
from txtopo.state import State, open_state
from txtopo.testing.conformance import MillionKeysSuite, StateBackendSuite
from txtopo.testing.conformance.driver import StateDriver
from txtopo.testing.conformance.value_suites import SizeSuite


@pytest.fixture
def store() -> State:
    return open_state("memory:")


@pytest.fixture
def url(store: State) -> str:
    return store.url


class TestStateBackend(StateBackendSuite):
    """No way of writing differs with the number of rows, so fewer are enough."""

    histories = times(200)
    keys_max = 2_000
    many = 30


def test_a_page_tells_how_many_tests_the_suite_has(request: pytest.FixtureRequest) -> None:
    """In the line that a suite prints first."""
    own = [each for each in request.session.items if getattr(each, "cls", None) is TestStateBackend]
    names = {each.function.__name__ for each in own if isinstance(each, pytest.Function)}
    if names != {name for name in dir(TestStateBackend) if name.startswith("test")}:
        pytest.skip("a part of the suite was selected")

    page = (ROOT / "docs" / "how-to" / "conformance.md").read_text()
    assert re.findall(r"^TestMine: about \d+ s for (\d+) tests", page, re.M) == [str(len(own))]


@pytest.mark.integration
class TestManyKeys(SizeSuite):
    keys_max = most(100_000, otherwise=10_000)


@pytest.mark.slow
class TestMillionKeys(MillionKeysSuite):
    pass


def test_each_memory_state_is_its_own() -> None:
    first, second = (open_state("memory:", table="counts") for _ in range(2))
    StateDriver(first).puts(1, {"a": 1})

    assert first.url != second.url
    assert StateDriver(second).contents() == {}


def test_a_write_on_an_old_reading_is_refused() -> None:
    store = StateDriver(open_state("memory:", table="counts"))
    old = store.ledger
    assert isinstance(store.backend, MemoryBackend)
    store.puts(1, {"a": 1})

    assert not store.backend.replace(old, old.written_by(store.attempt(1)), {("a",): None})
    assert store.contents() == {"a": 1}


def test_a_copy_is_the_same_store_while_the_original_lives() -> None:
    state = open_state("memory:", table="counts")
    StateDriver(state).puts(1, {"a": 1})
    copy = pickle.loads(pickle.dumps(state))

    with copy.reader() as reader:
        assert reader.get("a") == 1
    assert not copy.shared_by_processes
    del state
    with pytest.raises(TopologyError, match="another process"):
        copy.open()
