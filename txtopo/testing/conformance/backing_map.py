"""BackingMapSuite: what every backing map must do; subclass it to test one.

* :class:`TextsSuite`: what a map does with texts: order, missing keys, odd keys, large values,
  restarts.
* :class:`CrashSuite`: the state over the map undoes a put that dies halfway.
* :class:`ComparingSuite`: the optional third method; skipped for a map of two methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from txtopo.plugins.stores import (
    BackingMap,
    ComparesAndPuts,
    OpaqueMap,
    StateTable,
    TransactionalMap,
)
from txtopo.testing.conformance.map_dying_suites import DyingMapSuite, RaisingMapSuite
from txtopo.testing.conformance.map_fixtures import (
    MapFixtures,
    OpenMap,
    commit_to,
    seen_in,
    table_of,
)
from txtopo.testing.conformance.rules import MapRule, proves


class TextsSuite(MapFixtures):
    """What a map does with texts."""

    @proves(MapRule.ANSWERS)
    def test_a_key_that_was_never_put_has_none(self, open_map: OpenMap) -> None:
        """The answer is None, not an empty text or an error."""
        texts = open_map()

        assert texts.multi_get(["a", "b"]) == [None, None], "None stands for a missing key"
        texts.multi_put(["a"], ["1"])
        assert texts.multi_get(["b", "a"]) == [None, "1"], "None stands for a missing key"

    @proves(MapRule.ANSWERS)
    def test_answers_have_the_order_of_the_keys(self, open_map: OpenMap) -> None:
        """The first answer is for the first key, and so on."""
        texts, keys = open_map(), [f"key {n}" for n in range(100)]
        texts.multi_put(keys, [f"value {n}" for n in range(100)])

        for step in (7, 93, 99):
            asked = [keys[n * step % 100] for n in range(100) if n % 3]
            right = [key.replace("key", "value") for key in asked]
            assert texts.multi_get(asked) == right, "one answer per key, in the order of the keys"

    @proves(MapRule.ANSWERS)
    def test_no_keys_are_no_error(self, open_map: OpenMap) -> None:
        """Empty batches commit."""
        texts = open_map()

        texts.multi_put([], [])
        assert texts.multi_get([]) == [], "no keys, no answers"

    @proves(MapRule.PUT)
    def test_the_last_value_stays_and_other_keys_are_left_alone(self, open_map: OpenMap) -> None:
        """A put replaces the value of its keys and touches nothing else."""
        texts = open_map()
        texts.multi_put(["a", "b", "c"], ["1", "2", "3"])

        texts.multi_put(["c", "a"], ["30", "10"])
        assert texts.multi_get(["a", "b", "c"]) == ["10", "2", "30"]

    @proves(MapRule.PUT)
    def test_a_key_given_twice_keeps_the_last_value_or_is_refused_whole(
        self, open_map: OpenMap
    ) -> None:
        """The framework never does it, but anything in between would be wrong."""
        texts = open_map()
        texts.multi_put(["a"], ["0"])

        try:
            texts.multi_put(["a", "b", "a"], ["1", "2", "3"])
        except ValueError:
            assert texts.multi_get(["a", "b"]) == ["0", None], "refused, so nothing is written"
        else:
            assert texts.multi_get(["a", "b"]) == ["3", "2"], "the last value wins"

    @proves(MapRule.TEXTS)
    def test_keys_that_look_alike_are_different(self, open_map: OpenMap) -> None:
        """Case, blanks, patterns and paths have no meaning in a key."""
        texts = open_map()
        values = [f'"value {n}"' for n in range(len(ODD_KEYS))]

        texts.multi_put(ODD_KEYS, values)
        assert texts.multi_get(ODD_KEYS) == values, "each text is a key of its own"

    @proves(MapRule.TEXTS)
    def test_values_come_back_as_they_were(self, open_map: OpenMap) -> None:
        """A store that parses JSON may return another text for the same value."""
        texts, keys = open_map(), [f"key {n}" for n in range(len(ODD_VALUES))]

        texts.multi_put(keys, ODD_VALUES)
        assert texts.multi_get(keys) == [*ODD_VALUES], "values are texts, and nothing reads them"

    @proves(MapRule.TEXTS)
    def test_long_keys_and_large_values_are_kept_whole(self, open_map: OpenMap) -> None:
        """Some stores truncate silently."""
        texts = open_map()
        long = [f'["{"k" * (self.key_bytes_max - 10)}",{n}]' for n in range(3)]
        large = [f'"{"v" * (self.value_bytes_max - 10)}{n}"' for n in range(3)]

        texts.multi_put(long, large)
        assert texts.multi_get(long) == large, "nothing is cut"

    @proves(MapRule.PUT)
    def test_a_call_with_many_keys_is_kept_whole(self, open_map: OpenMap, keys: int) -> None:
        """A map may have to split a call for its store."""
        texts, names = open_map(), [f'["counts","row","[{n}]"]' for n in range(keys)]
        values = [f"[{n}]" for n in range(keys)]

        texts.multi_put(names, values)
        assert texts.multi_get(names) == values
        assert texts.multi_get(names[::-1]) == values[::-1]

    @proves(MapRule.DURABLE)
    def test_what_was_put_is_there_for_who_opens_the_store_next(self, open_map: OpenMap) -> None:
        """A process that is killed closes nothing."""
        open_map().multi_put(["a", "b"], ["1", "2"])

        closed = open_map()
        assert closed.multi_get(["a", "b"]) == ["1", "2"], "multi_put is durable when it returns"
        closed.multi_put(["a"], ["10"])
        closed.close()
        closed.close()
        assert open_map().multi_get(["a", "b"]) == ["10", "2"]

    @proves(MapRule.ATOMIC)
    def test_a_reader_meanwhile_sees_whole_values(self, open_map: OpenMap) -> None:
        """A reader sees the text before a put, or the one after it."""
        writer, reader = open_map(), open_map()
        whole = [text * 20_000 for text in "ab"]
        writer.multi_put(["key"], whole[:1])

        def write() -> None:
            for n in range(40):
                writer.multi_put(["key"], [whole[n % 2]])

        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(write)
            seen = _read_until(done.done, reader)
            done.result()
        torn = [text and f"{text[:1]}…{text[-1:]} of {len(text)}" for text in seen - set(whole)]
        assert seen <= set(whole), f"the write of a key is atomic; a reader saw {torn[:3]}"


class CrashSuite(MapFixtures):
    """Puts that die halfway. The crash is simulated; each attempt opens the real store again."""

    @proves(MapRule.REDO)
    def test_an_opaque_batch_that_died_half_way_is_taken_back(self, open_map: OpenMap) -> None:
        """The next attempt has another batch."""
        for keys_left in range(_PUTS_MAX):
            table = table_of(f"opaque {keys_left}", "opaque")
            commit_to(OpaqueMap(open_map(), table), 1, {"a": 1, "b": 1})
            commit_to(_dying(open_map, keys_left, table), 2, {"a": 2, "b": None, "new": 2})

            commit_to(OpaqueMap(open_map(), table), 2, {"a": 3})
            assert seen_in(OpaqueMap(open_map(), table)) == {"a": 3, "b": 1}, (
                f"a put that died after {keys_left} keys left something behind"
            )

    @proves(MapRule.REDO)
    def test_a_transactional_batch_that_died_half_way_is_written_again(
        self, open_map: OpenMap
    ) -> None:
        """The next attempt has the same batch."""
        for keys_left in range(_PUTS_MAX):
            table = table_of(f"transactional {keys_left}", "transactional")
            commit_to(TransactionalMap(open_map(), table), 1, {"a": 1, "b": 1})
            commit_to(_dying(open_map, keys_left, table), 2, {"a": 2, "b": None, "new": 2})

            commit_to(TransactionalMap(open_map(), table), 2, {"a": 2, "b": None, "new": 2})
            assert seen_in(TransactionalMap(open_map(), table)) == {"a": 2, "new": 2}, (
                f"a put that died after {keys_left} keys left something behind"
            )


class ComparingSuite(MapFixtures):
    """``compare_and_put``, on which the fence relies."""

    @proves(MapRule.COMPARES)
    def test_a_compare_and_put_writes_only_over_what_was_expected(self, open_map: OpenMap) -> None:
        """The expected text may be None, for a missing key."""
        texts, other = _comparing(open_map), _comparing(open_map)

        assert texts.compare_and_put("a", None, "1") is True
        assert texts.compare_and_put("a", None, "2") is False, "there is something already"
        assert texts.compare_and_put("a", "2", "3") is False, "it is another text"
        assert other.compare_and_put("b", "1", "2") is False, "there is nothing"
        assert other.compare_and_put("a", "1", "4") is True
        assert open_map().multi_get(["a", "b"]) == ["4", None]

    @proves(MapRule.COMPARES)
    def test_of_writers_at_once_each_value_has_one_winner(self, open_map: OpenMap) -> None:
        """The map compares and writes in one step, so no increment is lost."""
        _comparing(open_map).compare_and_put("n", None, "0")

        def count() -> None:
            texts, reader, won = _comparing(open_map), open_map(), 0
            while won < _WINS:
                (held,) = reader.multi_get(["n"])
                assert held is not None
                won += texts.compare_and_put("n", held, str(int(held) + 1))

        with ThreadPoolExecutor(_WRITERS) as threads:
            for done in [threads.submit(count) for _ in range(_WRITERS)]:
                done.result()
        assert open_map().multi_get(["n"]) == [str(_WRITERS * _WINS)], "an increment was lost"


class BackingMapSuite(TextsSuite, CrashSuite, ComparingSuite, DyingMapSuite, RaisingMapSuite):
    """Proves that a :class:`txtopo.plugins.stores.BackingMap` keeps its contract.

    The subclass needs a fixture ``open_map``: a function without arguments. Each call opens the
    store of the test once more; the store is empty when the test begins. Attributes of the subclass
    set how much the tests do: ``keys_max`` and the others of
    :class:`~txtopo.testing.conformance.map_fixtures.MapFixtures`.

    Its 380 puts take 2 s on a store with 5 ms a put; the suite prints at its start how long it
    takes here.

    Example:
        >>> class TestFolder(BackingMapSuite):
        ...     @pytest.fixture
        ...     def open_map(self, tmp_path):
        ...         return lambda: Folder(f"folder:{tmp_path}")
    """


_WRITERS = 4

_WINS = 10


def _comparing(open_map: OpenMap) -> ComparesAndPuts:
    opened = open_map()
    if not isinstance(opened, ComparesAndPuts):
        pytest.skip("the map has two methods: no compare_and_put, no fence")
    return opened


# More keys than any commit here puts.
_PUTS_MAX = 12


class DyingMap(BackingMap):
    """Writes *keys_left* keys and then fails, as if the process had died."""

    def __init__(self, behind: BackingMap, keys_left: int) -> None:
        self._behind = behind
        self._keys_left = keys_left

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        """Read the values of the keys."""
        return self._behind.multi_get(keys)

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        """Write as many keys as are left."""
        passed = min(len(keys), self._keys_left)
        if passed:
            self._behind.multi_put(keys[:passed], values[:passed])
        self._keys_left -= passed
        if passed < len(keys):
            raise ConnectionError("the process died here, as the test wanted")

    def close(self) -> None:
        """Close the real map."""
        self._behind.close()


def _dying(open_map: OpenMap, keys_left: int, table: StateTable) -> OpaqueMap | TransactionalMap:
    kind = OpaqueMap if table.kind == "opaque" else TransactionalMap
    return kind(DyingMap(open_map(), keys_left), table)


# Keys in the form of the framework, which a store must not confuse.
ODD_KEYS = (
    '["counts","row","[\\"a\\"]"]',
    '["counts","row","[\\"A\\"]"]',
    '["counts","row","[\\"a \\"]"]',
    '["counts","row","[\\" a\\"]"]',
    '["counts","row","[\\"a\\\\u0000\\"]"]',
    '["counts","row","[\\"\\\\ud800\\"]"]',
    '["counts","row","[\\"../../a\\"]"]',
    '["counts","row","[\\"%61\\"]"]',
    '["counts","row","[\\"a*?[a]\\"]"]',
    '["counts","row","[\\"{a}:a;a\'a`a$a\\"]"]',
    '["counts","row","[1]"]',
    '["counts","row","[1.0]"]',
    '["counts","keys",0]',
    '["counts"]',
)

ODD_VALUES = ("null", '"null"', "[]", '"\\u0000\\ud800"', "[1,0,[1,[-9223372036854775808]]]")


def _read_until(done: Callable[[], bool], reader: BackingMap) -> set[str | None]:
    """Return the set of texts that were read until *done*."""
    seen = {*reader.multi_get(["key"])}
    while not done():
        seen.update(reader.multi_get(["key"]))
    return seen
