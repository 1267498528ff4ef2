"""What a backing map does with texts: order, missing keys, odd keys, large values, restarts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from txtopo.state import BackingMap

OpenMap = Callable[[], BackingMap]
# Keys as the framework makes them, and as no store may mix them up.
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


class TextsSuite:
    """Texts by text.

    Attributes:
        keys_max: How many keys one call has; a map is asked for 10,000 at most.
        value_bytes_max: How long the longest value is that is tried.
        key_bytes_max: How long the longest key is that is tried.
    """

    keys_max: ClassVar[int] = 10_000
    value_bytes_max: ClassVar[int] = 1_000_000
    key_bytes_max: ClassVar[int] = 5_000

    def test_a_key_that_was_never_put_has_none(self, open_map: OpenMap) -> None:
        """Not an empty text, not an error."""
        texts = open_map()

        assert texts.multi_get(["a", "b"]) == [None, None], "None stands for a missing key"
        texts.multi_put(["a"], ["1"])
        assert texts.multi_get(["b", "a"]) == [None, "1"], "None stands for a missing key"

    def test_answers_have_the_order_of_the_keys(self, open_map: OpenMap) -> None:
        """A list is no dictionary: the first answer is for the first key."""
        texts, keys = open_map(), [f"key {n}" for n in range(100)]
        texts.multi_put(keys, [f"value {n}" for n in range(100)])

        for step in (7, 93, 99):
            asked = [keys[n * step % 100] for n in range(100) if n % 3]
            right = [key.replace("key", "value") for key in asked]
            assert texts.multi_get(asked) == right, "one answer per key, in the order of the keys"

    def test_no_keys_are_no_error(self, open_map: OpenMap) -> None:
        """Empty batches commit."""
        texts = open_map()

        texts.multi_put([], [])
        assert texts.multi_get([]) == [], "no keys, no answers"

    def test_the_last_value_stays_and_other_keys_are_left_alone(self, open_map: OpenMap) -> None:
        """A put replaces, and touches nothing else."""
        texts = open_map()
        texts.multi_put(["a", "b", "c"], ["1", "2", "3"])

        texts.multi_put(["c", "a"], ["30", "10"])
        assert texts.multi_get(["a", "b", "c"]) == ["10", "2", "30"]

    def test_a_key_given_twice_keeps_the_last_value_or_is_refused_whole(
        self, open_map: OpenMap
    ) -> None:
        """Nobody does it, but it must not end in between."""
        texts = open_map()
        texts.multi_put(["a"], ["0"])

        try:
            texts.multi_put(["a", "b", "a"], ["1", "2", "3"])
        except ValueError:
            assert texts.multi_get(["a", "b"]) == ["0", None], "refused, so nothing is written"
        else:
            assert texts.multi_get(["a", "b"]) == ["3", "2"], "the last value wins"

    def test_keys_that_look_alike_are_different(self, open_map: OpenMap) -> None:
        """Case, blanks, patterns and paths mean nothing in a key."""
        texts = open_map()
        values = [f'"value {n}"' for n in range(len(ODD_KEYS))]

        texts.multi_put(ODD_KEYS, values)
        assert texts.multi_get(ODD_KEYS) == values, "each text is a key of its own"

    def test_values_come_back_as_they_were(self, open_map: OpenMap) -> None:
        """A store that reads JSON may write it otherwise."""
        texts, keys = open_map(), [f"key {n}" for n in range(len(ODD_VALUES))]

        texts.multi_put(keys, ODD_VALUES)
        assert texts.multi_get(keys) == [*ODD_VALUES], "values are texts, and nothing reads them"

    def test_long_keys_and_large_values_are_kept_whole(self, open_map: OpenMap) -> None:
        """Some stores cut what is too long without a word."""
        texts = open_map()
        long = [f'["{"k" * (self.key_bytes_max - 10)}",{n}]' for n in range(3)]
        large = [f'"{"v" * (self.value_bytes_max - 10)}{n}"' for n in range(3)]

        texts.multi_put(long, large)
        assert texts.multi_get(long) == large, "nothing is cut"

    def test_a_call_with_many_keys_is_kept_whole(self, open_map: OpenMap) -> None:
        """A map splits what its store takes in pieces."""
        texts, keys = open_map(), [f'["counts","row","[{n}]"]' for n in range(self.keys_max)]
        values = [f"[{n}]" for n in range(self.keys_max)]

        texts.multi_put(keys, values)
        assert texts.multi_get(keys) == values
        assert texts.multi_get(keys[::-1]) == values[::-1]

    def test_what_was_put_is_there_for_who_opens_the_store_next(self, open_map: OpenMap) -> None:
        """A process that is killed closes nothing."""
        open_map().multi_put(["a", "b"], ["1", "2"])

        closed = open_map()
        assert closed.multi_get(["a", "b"]) == ["1", "2"], "multi_put is durable when it returns"
        closed.multi_put(["a"], ["10"])
        closed.close()
        closed.close()
        assert open_map().multi_get(["a", "b"]) == ["10", "2"]

    def test_a_reader_meanwhile_sees_whole_values(self, open_map: OpenMap) -> None:
        """Who reads a key sees the text before a put, or the one after it."""
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


def _read_until(done: Callable[[], bool], reader: BackingMap) -> set[str | None]:
    """Return each text that was seen once: a slow writer gives a reader a lot of time."""
    seen = {*reader.multi_get(["key"])}
    while not done():
        seen.update(reader.multi_get(["key"]))
    return seen
