"""DyingMapSuite: writers of a backing map that die in the middle of a put, and puts that raise.

A separate process dies (:mod:`~txtopo.testing.conformance.deaths`). Then each key must have the
text from before the put or the one that was put, and a state over the map must be right once the
batch is written again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pytest

from txtopo.plugins.stores import ComparesAndPuts, OpaqueMap, TransactionalMap
from txtopo.state import StateKind
from txtopo.testing.conformance.deaths import Deaths, Work, dies_at, done, spread, steps_of
from txtopo.testing.conformance.map_fixtures import (
    MapFixtures,
    OpenMap,
    commit_to,
    seen_in,
    table_of,
)
from txtopo.testing.conformance.pace import DEATHS_MAX, DEATHS_MIN, is_long
from txtopo.testing.conformance.rules import MapRule, proves


@dataclass(frozen=True)
class PutTexts(Work):
    """Puts texts by one call."""

    open_map: OpenMap
    keys: Sequence[str]
    texts: Sequence[str]

    def prepare(self) -> Callable[[], object]:
        """Open the map."""
        return partial(self.open_map().multi_put, self.keys, self.texts)


@dataclass(frozen=True)
class CompareAndPut(Work):
    """Replaces a text by another one."""

    open_map: OpenMap
    expected: str
    text: str

    def prepare(self) -> Callable[[], object]:
        """Open the map."""
        opened = self.open_map()
        assert isinstance(opened, ComparesAndPuts)
        return partial(opened.compare_and_put, _KEY, self.expected, self.text)


@dataclass(frozen=True)
class CommitToMap(Work):
    """Commits a batch to a state over the map."""

    open_map: OpenMap
    kind: StateKind
    table: str
    rows: dict[str, int | None]

    def prepare(self) -> Callable[[], object]:
        """Open the map."""
        kind = OpaqueMap if self.kind == "opaque" else TransactionalMap
        state = kind(self.open_map(), table_of(self.table, self.kind))
        return partial(commit_to, state, 2, self.rows)


_KEY = '["counts","row","[1]"]'
_PROBE = '["probe"]'
_TEXT_LENGTH = 100_000


@dataclass
class SurvivingTexts:
    """The expected texts while one writer after the other dies.

    Attributes:
        open_map: Opens the map.
        keys: The keys that each writer puts.
        number: How many puts there were.
    """

    open_map: OpenMap
    keys: Sequence[str]
    number: int = 0

    def texts(self, number: int) -> list[str]:
        """Return the texts of a put: long ones, which differ from its predecessor's throughout."""
        return [f'"{"ab"[number % 2] * _TEXT_LENGTH}"' for _ in self.keys]

    def work(self) -> PutTexts:
        """Return the next put."""
        return PutTexts(self.open_map, self.keys, self.texts(self.number + 1))

    def compared(self) -> CompareAndPut:
        """Return the next put by ``compare_and_put``."""
        return CompareAndPut(self.open_map, self.texts(self.number)[0], self.work().texts[0])

    def ended(self) -> None:
        """Check that the put of another process exists."""
        found = self.open_map().multi_get(self.keys)
        assert found == self.texts(self.number + 1), "the put of another process is not there"
        self.number += 1

    def landed(self, death: str) -> bool:
        """Check the texts after a death, and put them again."""
        texts = self.open_map()
        old, new = self.texts(self.number)[0], self.texts(self.number + 1)[0]
        found = texts.multi_get(self.keys)
        torn = [text and f"{text[:2]}…{text[-2:]} of {len(text)}" for text in found]
        assert set(found) <= {old, new}, f"{death}; a key has neither the old nor the new: {torn}"
        texts.multi_put(self.keys, self.texts(self.number + 1))
        self.number += 1
        assert texts.multi_get(self.keys) == self.texts(self.number), f"a put later; {death}"
        return found[-1] == new


class DyingMapSuite(MapFixtures):
    """Writers that die.

    Attributes:
        forks: Whether ``open_map`` opens the store in a process that has opened nothing.
    """

    forks: ClassVar[bool] = True

    @pytest.fixture
    def most(self, open_map: OpenMap) -> int:
        """How many deaths are spread over a kind of write."""
        if not self.forks:
            pytest.skip("no other process opens the map as this one does: forks = False")
        done(PutTexts(open_map, [_PROBE], ["1"]))
        if open_map().multi_get([_PROBE]) == [None]:
            pytest.skip("the map is in the memory of a process, and dies with it")
        return DEATHS_MAX if self.long or is_long() else DEATHS_MIN

    @pytest.mark.parametrize("keys", [1, 3])
    @proves(MapRule.ATOMIC)
    def test_a_put_whose_writer_dies_leaves_each_key_with_one_of_both_texts(
        self, open_map: OpenMap, most: int, keys: int
    ) -> None:
        survivor = self._begun(open_map, keys)
        Deaths(survivor.work, survivor.landed, survivor.ended).at_each_step(most)

    @proves(MapRule.ATOMIC)
    def test_a_put_whose_writer_dies_at_any_time_leaves_one_of_both_texts(
        self, open_map: OpenMap, most: int
    ) -> None:
        """The writer may die even in the middle of one call that writes the whole text."""
        survivor = self._begun(open_map, 3)
        Deaths(survivor.work, survivor.landed, survivor.ended).at_any_time()

    @proves(MapRule.COMPARES)
    def test_a_compare_and_put_whose_writer_dies_leaves_one_of_both_texts(
        self, open_map: OpenMap, most: int
    ) -> None:
        if not isinstance(open_map(), ComparesAndPuts):
            pytest.skip("the map has two methods: no compare_and_put, no fence")
        survivor = self._begun(open_map, 1)
        Deaths(survivor.compared, survivor.landed, survivor.ended).at_each_step(most)

    @pytest.mark.parametrize("kind", ["opaque", "transactional"])
    @proves(MapRule.REDO)
    def test_a_batch_whose_writer_dies_is_taken_back_or_written_again(
        self, open_map: OpenMap, most: int, kind: StateKind
    ) -> None:
        """An opaque state then gets another batch, a transactional one the same."""
        state = OpaqueMap if kind == "opaque" else TransactionalMap
        batch: dict[str, int | None] = {"a": 2, "b": None, "new": 2}
        again: dict[str, int | None] = {"a": 3} if kind == "opaque" else batch
        right = {"a": 3, "b": 1} if kind == "opaque" else {"a": 2, "new": 2}
        numbers = itertools.count()

        def work() -> CommitToMap:
            name = f"{kind} {next(numbers):03}"
            commit_to(state(open_map(), table_of(name, kind)), 1, {"a": 1, "b": 1})
            return CommitToMap(open_map, kind, name, batch)

        done(work())
        steps = steps_of(work())
        for step in spread(steps.calls_apart or range(len(steps.places)), 2 * most):
            dead = work()
            dies_at(dead, step)
            table = table_of(dead.table, kind)
            commit_to(state(open_map(), table), 2, again)
            assert seen_in(state(open_map(), table)) == right, f"it died {steps.places[step]}"

    def _begun(self, open_map: OpenMap, keys: int) -> SurvivingTexts:
        survivor = SurvivingTexts(open_map, [_KEY, *(f"further {n}" for n in range(1, keys))])
        survivor.number = 1
        open_map().multi_put(survivor.keys, survivor.texts(1))
        return survivor


class RaisingTexts(Sequence[str]):
    """Texts that raise ``ConnectionError`` when they are read too often."""

    def __init__(self, texts: Sequence[str], accesses: int) -> None:
        self._texts = texts
        self._left = accesses

    def __len__(self) -> int:
        """Return how many texts there are."""
        return len(self._texts)

    def __getitem__(self, at: int) -> str:  # type: ignore[override]
        """Return a text."""
        text = self._texts[at]
        self._left -= 1
        if self._left < 0:
            raise ConnectionError("the texts raise here, as the test wanted")
        return text


class RaisingMapSuite(MapFixtures):
    """Texts that raise in the middle of a put."""

    @proves(MapRule.ATOMIC)
    def test_a_put_whose_texts_raise_leaves_each_key_with_one_of_both_texts(
        self, open_map: OpenMap
    ) -> None:
        """The same object is used again: a ``ConnectionError`` may be transient."""
        texts, keys = open_map(), ["a", "b", "c"]
        for accesses in range(_ACCESSES_MAX):
            old, new = f'"{accesses}"', f'"{accesses + 1}"'
            texts.multi_put(keys, [old] * 3)
            try:
                texts.multi_put(keys, RaisingTexts([new] * 3, accesses))
            except ConnectionError:
                assert set(open_map().multi_get(keys)) <= {old, new}, f"after {accesses} accesses"
            else:
                assert open_map().multi_get(keys) == [new] * 3
                return
        raise AssertionError(f"three texts were read more than {_ACCESSES_MAX} times")


_ACCESSES_MAX = 50
