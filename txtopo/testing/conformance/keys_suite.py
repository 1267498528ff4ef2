"""Keys: those that differ are different rows, whatever a collation thinks of them."""

from __future__ import annotations

import decimal
import random
from typing import Any

import pytest

from txtopo.errors import ValueRefusedError
from txtopo.state import Count, Fields, State
from txtopo.testing.conformance.assertions import Rule, proves
from txtopo.testing.conformance.driver import StateDriver, putting
from txtopo.testing.conformance.subject import Drive, Subject, stored_rows
from txtopo.testing.conformance.values_suite import VALUES

_CHANCE = random.Random(700)
# 700 characters that no compression makes short, and two more that differ in the last one.
_LONG = "".join(
    _CHANCE.choices("abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=700)
)
# Keys that a collation, a trim or a normalisation would take for one another.
ALIKE = {
    "case": ["word", "Word", "WORD", "straße", "STRASSE", "ı", "i", "I", "İ"],
    "accents": ["e", "é", "è", "ê", "ë", "o", "ö", "ø", "ł", "l"],
    "trailing blanks": ["a", "a ", "a  ", " a", "a\t", "a\n", "a\u00a0", "", " "],
    "normalisation": [
        *("\u00e9", "e\u0301", "\ufb01", "fi", "\u00c5", "\u212b", "A\u030a"),
        *("\uff41", "a", "\u2460", "1"),
    ],
    "quotes": ["'", "''", '"', '""', "`", "a'b", "a\\'b", "\\", "\\\\", "\\N", "NULL", "null"],
    "patterns": ["%", "_", "a%", "a_", ":a", "?", "$1", "{}", "{a}", "[1]", "(1)", "*", "%s", "%%"],
    "numbers": ["1", "01", "1.0", "1e0", "+1", "-0", "0", "nan", "NaN", "true", "1 "],
    "scripts": [
        "żółć",
        "Ελλάδα",
        "мир",
        "שלום",
        "سلام",
        "日本",
        "日本語",
        "नमस्ते",
        "🐘",
        "🐘🐘",
        "👩‍👩‍👧",
    ],
    "invisible": [
        "a\u200b",
        "a",
        "\ufeffa",
        "a\u00ad",
        "\u202ea",
        "\x01",
        "\x7f",
        "\x1f",
        "\r",
        "\r\n",
    ],
    "700 characters": [_LONG, _LONG[:-1] + "!", _LONG[:-1], "x" * 700, "x" * 699],
}


class KeysSuite(Subject):
    """Odd strings, keys of several fields, and names that have to be quoted."""

    @pytest.mark.parametrize("sort", ALIKE)
    @proves(Rule.KEYS)
    def test_keys_that_look_alike_are_different(
        self, counts: State, drive: Drive, sort: str
    ) -> None:
        self._keep_apart(drive(counts), list(dict.fromkeys(ALIKE[sort])), 0)

    @proves(Rule.KEYS)
    def test_keys_that_look_alike_are_different_among_many(
        self, counts: State, drive: Drive
    ) -> None:
        keys = [key for alike in ALIKE.values() for key in alike]
        self._keep_apart(drive(counts), list(dict.fromkeys(keys)), self.many)

    def _keep_apart(self, store: StateDriver, keys: list[str], number: int) -> None:
        others = [f"other {n}" for n in range(number)]

        store.merge(1, [(key, n) for n, key in enumerate([*keys, *others])])
        store.merge(2, [(key, 100) for key in [*keys[::2], *others]])
        expected = {key: n + 100 * (n % 2 == 0) for n, key in enumerate(keys)}
        assert _of(keys, store.contents()) == expected
        store.merge(2, [(key, 100) for key in keys[1::2]], attempt=1)
        expected = {key: n + 100 * (n % 2) for n, key in enumerate(keys)}
        assert _of(keys, store.contents()) == expected
        assert len(store.contents()) == len(keys) + len(others)

    @proves(Rule.KEYS)
    def test_keys_that_differ_in_a_field_are_different(self, url: str, drive: Drive) -> None:
        key = Fields("word string, hour int, raw binary, price decimal(10,2)")
        store = drive(self.aggregated(url, "several", key, Fields("n long"), (Count(),)))
        price, zero = decimal.Decimal("9.10"), decimal.Decimal("0.00")
        keys = [
            ("a", 1, b"b", price),
            ("a", 1, b"b", zero),
            ("a", 1, b"", price),
            ("a", 11, b"b", price),
            ("a1", 1, b"b", price),
            ("", 1, b"b", price),
        ]

        store.merge(1, [(*key, n) for n, key in enumerate(keys)])
        store.merge(2, [(*keys[0], 10), (*keys[3], 10), ("new", 0, b"", zero, 1)])
        store.merge(2, [(*keys[1], 10)], attempt=1)
        assert store.contents() == {key: n + 10 * (n == 1) for n, key in enumerate(keys)}
        with store.backend.snapshot() as snapshot:
            assert set(snapshot.rows([*keys, ("a", 2, b"b", price)])) == set(keys)

    @pytest.mark.parametrize("kind", [kind for kind in VALUES if kind != "boolean"])
    @proves(Rule.KEYS)
    def test_a_key_of_each_type_is_found_again(self, url: str, drive: Drive, kind: str) -> None:
        state = self.aggregated(url, "typed", Fields(f"k {kind}"), Fields("n long"), (Count(),))
        store = drive(state)
        keys = VALUES[kind]

        store.merge(1, [(key, 1) for key in keys])
        store.merge(2, [(key, n) for n, key in enumerate(keys)])
        store.merge(2, [(keys[0], 5)], attempt=1)
        assert store.contents() == {key: 1 + 5 * (key == keys[0]) for key in keys}
        with state.reader() as reader:
            assert [reader.get(key) for key in keys] == [6, *[1] * (len(keys) - 1)]

    @proves(Rule.KEYS)
    def test_null_and_nan_are_no_keys_and_zero_has_no_sign(self, url: str, drive: Drive) -> None:
        state = self.aggregated(url, "keys", Fields("x double"), Fields("n long"), (Count(),))
        store = drive(state)

        for key in (None, float("nan")):
            with pytest.raises(ValueRefusedError):
                store.merge(1, [(key, 1)])
        store.merge(1, [(-0.0, 1)])
        store.merge(2, [(0.0, 1)])
        assert store.contents() == {0.0: 2}
        assert str(next(iter(store.contents()))) == "0.0"
        with pytest.raises(ValueRefusedError):
            store.merge(3, [(0.0, 1), (-0.0, 1)])

    @proves(Rule.KEYS)
    def test_a_key_twice_in_a_batch_is_refused_whole(self, counts: State, drive: Drive) -> None:
        store = drive(counts)

        with pytest.raises(ValueRefusedError):
            store.merge(1, [("a", 1), ("b", 1), ("a", 1)])
        assert store.contents() == {}
        assert store.merge(1, [("a", 1)]).txid == 1

    @pytest.mark.parametrize("name", ['we"ird name', "select", "ünicode", "50% off:`b"])
    @proves(Rule.KEYS)
    def test_names_are_quoted(self, url: str, drive: Drive, name: str) -> None:
        column = name.replace("`", "'")
        fields = Fields(f"`{column}` string"), Fields(f"`{column} 2` long")
        store = drive(self.aggregated(url, name, *fields, (Count(),)))

        store.merge(1, [("x", 1)])
        store.merge(2, [(str(n), 1) for n in range(self.many)])
        store.merge(2, [("x", 1)], attempt=1)
        assert store.contents() == {"x": 2}


class PutKeysSuite(Subject):
    """The same for values that are written one by one."""

    @proves(Rule.KEYS)
    def test_keys_that_look_alike_are_written_apart(self, state: State, drive: Drive) -> None:
        keys = list(dict.fromkeys(key for alike in ALIKE.values() for key in alike))
        store = drive(state)

        store.run(1, putting({key: n for n, key in enumerate(keys)}))
        assert store.contents() == {key: n for n, key in enumerate(keys)}
        assert store.run(2, lambda s: s.get_all(keys)) == list(range(len(keys)))
        store.puts(3, dict.fromkeys(keys[::2]))
        assert set(store.contents()) == set(keys[1::2])

    @proves(Rule.KEYS)
    def test_a_put_under_null_or_nan_is_refused(self, url: str, drive: Drive) -> None:
        store = drive(self.declared(url, "keys", Fields("x double")))

        for key in (None, float("nan")):
            with pytest.raises(ValueRefusedError):
                store.run(1, putting({key: 1}))
        store.run(1, putting({-0.0: 1}))
        assert store.run(2, lambda s: s.get(0.0)) == 1
        assert [str(key) for (key,) in stored_rows(store)] == ["0.0"]

    @proves(Rule.KEYS)
    def test_many_keys_are_read_at_once(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.puts(1, {str(n): n for n in range(1_000)})

        wanted = [str(n) for n in range(0, 1_010, 2)]
        found = store.run(2, lambda s: s.get_all(wanted))
        assert found == [*range(0, 1_000, 2), *[None] * 5]


def _of(keys: list[str], contents: dict[str, Any]) -> dict[str, Any]:
    return {key: contents.get(key) for key in keys}
