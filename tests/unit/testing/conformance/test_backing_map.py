"""The suite for backing maps: one in a dict passes, and each broken one fails at its rule."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import pytest

from tests.unit.state.backing_maps import ComparingMap, DictMap
from txtopo.testing.conformance import BackingMapSuite, MapRule
from txtopo.testing.conformance.map_dying_suites import DyingMapSuite
from txtopo.testing.conformance.map_fixtures import OpenMap
from txtopo.testing.conformance.rules import PROVED


@pytest.mark.integration
class TestTwoMethods(BackingMapSuite):
    """It is in the memory of this process, so no process dies in it."""

    @pytest.fixture
    def open_map(self) -> OpenMap:
        texts: dict[str, str] = {}
        return lambda: DictMap(texts)


@pytest.mark.integration
class TestThreeMethods(BackingMapSuite):
    @pytest.fixture
    def open_map(self) -> OpenMap:
        texts: dict[str, str] = {}
        return lambda: ComparingMap(texts)


class LeavesOut(DictMap):
    """Answers for the keys that it has, as ``SELECT … WHERE key IN (…)`` does."""

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        return [self.texts[key] for key in keys if key in self.texts]


class InItsOwnOrder(DictMap):
    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        return super().multi_get(sorted(keys))


class FirstWins(DictMap):
    """Takes what is there for something that need not be written."""

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.texts.setdefault(key, value)


class IgnoresCase(DictMap):
    """Has the collation that MySQL has by default."""

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        return super().multi_get([key.lower() for key in keys])

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        super().multi_put([key.lower() for key in keys], values)


class CutsValues(DictMap):
    """Has a column of 64 kB."""

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        super().multi_put(keys, [value[:65_535] for value in values])


class WritesOnClose(DictMap):
    """Keeps what is put for itself until it is closed."""

    def __init__(self, texts: dict[str, str]) -> None:
        super().__init__(dict(texts))
        self.store = texts

    def close(self) -> None:
        self.store.update(self.texts)


class MissesAreEmpty(DictMap):
    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        return [self.texts.get(key, "") for key in keys]


class RefusesNone(DictMap):
    """Cannot do without keys, as ``IN ()`` in SQL."""

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        assert keys, "no keys"
        return super().multi_get(keys)


class RefusesTooLate(DictMap):
    """Refuses a key that is given twice once it has written the ones before."""

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        written: set[str] = set()
        for key, value in zip(keys, values, strict=True):
            if key in written:
                raise ValueError(f"twice: {key}")
            self.texts[key] = value
            written.add(key)


class ComparesWithoutCare(ComparingMap):
    """Writes without a look at what was expected."""

    def compare_and_put(self, key: str, expected: str | None, value: str) -> bool:
        self.texts[key] = value
        return True


class KeepsWhatItHas(DictMap):
    """Puts only keys that are new when there are more than two, as an INSERT that ignores does."""

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        if not any("row" in key and key in self.texts for key in keys):
            super().multi_put(keys, values)


class WritesAsItReads(DictMap):
    """Half a text is there when the next one cannot be read."""

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        for at, key in enumerate(keys):
            self.texts[key] = ""
            self.texts[key] = values[at]


ALIKE = "test_keys_that_look_alike_are_different"
NEXT = "test_what_was_put_is_there_for_who_opens_the_store_next"


BROKEN = [
    (LeavesOut, "test_a_key_that_was_never_put_has_none"),
    (InItsOwnOrder, "test_answers_have_the_order_of_the_keys"),
    (FirstWins, "test_the_last_value_stays_and_other_keys_are_left_alone"),
    (IgnoresCase, ALIKE),
    (CutsValues, "test_long_keys_and_large_values_are_kept_whole"),
    (WritesOnClose, NEXT),
    (MissesAreEmpty, "test_a_key_that_was_never_put_has_none"),
    (RefusesNone, "test_no_keys_are_no_error"),
    (RefusesTooLate, "test_a_key_given_twice_keeps_the_last_value_or_is_refused_whole"),
    (ComparesWithoutCare, "test_a_compare_and_put_writes_only_over_what_was_expected"),
    (KeepsWhatItHas, "test_an_opaque_batch_that_died_half_way_is_taken_back"),
    (WritesAsItReads, "test_a_put_whose_texts_raise_leaves_each_key_with_one_of_both_texts"),
]


@pytest.mark.parametrize(("broken", "at"), BROKEN)
def test_a_map_that_breaks_a_rule_fails_at_that_rule(broken: type[DictMap], at: str) -> None:
    failed = failures(broken)

    assert at in failed
    if broken in (IgnoresCase, CutsValues, RefusesNone, RefusesTooLate, ComparesWithoutCare):
        assert failed - {"test_of_writers_at_once_each_value_has_one_winner"} == {at}


def test_each_rule_is_broken_by_one() -> None:
    tests = {at for _, at in BROKEN}
    assert {rule for rule in MapRule if tests & set(PROVED[rule])} == set(MapRule)


def failures(broken: type[DictMap]) -> set[str]:
    """Return the tests that a map fails, without those that need another process."""
    members = inspect.getmembers(BackingMapSuite)
    names = {name for name, _ in members if name.startswith("test_")} - set(vars(DyingMapSuite))
    return {name for name in names if not passes(broken, name)}


def passes(broken: type[DictMap], name: str) -> bool:
    texts: dict[str, str] = {}
    test = getattr(BackingMapSuite(), name)
    fixtures = {"open_map": lambda: broken(texts), "keys": 200}
    try:
        test(*(fixtures[each] for each in inspect.signature(test).parameters))
    except pytest.skip.Exception:
        return True
    except Exception:  # noqa: BLE001 - a broken map may fail in any way
        return False
    return True
