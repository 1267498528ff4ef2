"""What the optional third method of a backing map does; skipped for a map of two methods."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from txtopo.state import ComparesAndPuts
from txtopo.testing.conformance.backing_map_texts import OpenMap

_WRITERS = 4
_WINS = 10


class ComparingSuite:
    """``compare_and_put``, which makes the fence."""

    def test_a_compare_and_put_writes_only_over_what_was_expected(self, open_map: OpenMap) -> None:
        """Nothing, or that very text."""
        texts, other = _comparing(open_map), _comparing(open_map)

        assert texts.compare_and_put("a", None, "1") is True
        assert texts.compare_and_put("a", None, "2") is False, "there is something already"
        assert texts.compare_and_put("a", "2", "3") is False, "it is another text"
        assert other.compare_and_put("b", "1", "2") is False, "there is nothing"
        assert other.compare_and_put("a", "1", "4") is True
        assert open_map().multi_get(["a", "b"]) == ["4", None]

    def test_of_writers_at_once_each_value_has_one_winner(self, open_map: OpenMap) -> None:
        """It compares and writes in one step: no increment is lost."""
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


def _comparing(open_map: OpenMap) -> ComparesAndPuts:
    opened = open_map()
    if not isinstance(opened, ComparesAndPuts):
        pytest.skip("the map has two methods: no compare_and_put, no fence")
    return opened
