"""What a dead letter holds: text that every store takes, bounded, without passwords."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from typing import Any

import pytest

from txtopo import Fields, RecordFailed
from txtopo.dead_letters import (
    FIELDS,
    MESSAGE_CHARACTERS_MAX,
    PLACE_CHARACTERS_MAX,
    RECORD_BYTES_MAX,
    dead_letter,
    in_order,
)
from txtopo.metadata import Json
from txtopo.tuples import Origin, Tuple

MEGABYTE = 1 << 20


def letter(
    record: object = b"", error: Exception | None = None, place: dict[str, Any] | None = None
) -> dict[str, Any]:
    row = dead_letter("parse", error or RecordFailed("bad"), place or {"offset": 1}, record)
    for text in row[:6]:
        assert isinstance(text, str)
        assert "\0" not in text
        text.encode()
    return dict(zip(FIELDS.names, row, strict=True))


@pytest.mark.parametrize("record", [b"", b"a,b", "ü\n\N{ELEPHANT}".encode(), b"\x1b[0m"])
def test_a_record_that_is_text_is_kept_as_text(record: bytes) -> None:
    made = letter(record)

    assert made["encoding"] == "text"
    assert made["record"].encode() == record
    assert not made["truncated"]


@pytest.mark.parametrize("record", [b"\xff", b"a\0b", b"\xed\xa0\x80"])
@pytest.mark.rule("txtopo.dead_letters", "Rules", 5)
def test_a_record_that_is_no_text_of_a_store_is_kept_as_base64(record: bytes) -> None:
    made = letter(record)

    assert made["encoding"] == "base64"
    assert base64.b64decode(made["record"]) == record


@pytest.mark.parametrize("sign", ["a", "ü", "€", "\N{ELEPHANT}"])
@pytest.mark.parametrize("shift", range(4))
def test_a_long_record_is_cut_between_two_signs(sign: str, shift: int) -> None:
    record = b"x" * shift + sign.encode() * (10 * MEGABYTE // len(sign.encode()))

    made = letter(record)

    assert (made["encoding"], made["truncated"]) == ("text", True)
    kept = made["record"].encode()
    assert record.startswith(kept)
    assert RECORD_BYTES_MAX - 4 < len(kept) <= RECORD_BYTES_MAX


def test_a_long_record_that_is_no_text_is_cut() -> None:
    made = letter(b"\xff" * 10 * MEGABYTE)

    assert (made["encoding"], made["truncated"]) == ("base64", True)
    assert base64.b64decode(made["record"]) == b"\xff" * RECORD_BYTES_MAX


def test_a_tuple_is_kept_as_json_of_its_fields() -> None:
    fields = Fields("word string, amount long, rate double, raw binary, day date, price decimal")
    origin = Origin(None, "spout", "default", fields)
    day = datetime.date(2026, 1, 2)
    values = ("ü", None, float("nan"), b"\xff", day, decimal.Decimal("1.50"))

    made = letter(Tuple(values, origin, 0))

    assert made["encoding"] == "json"
    assert '"ü"' in made["record"]
    assert json.loads(made["record"]) == {
        "word": "ü",
        "amount": None,
        "rate": "nan",
        "raw": {"base64": "/w=="},
        "day": "2026-01-02",
        "price": "1.50",
    }


def test_a_long_field_is_cut_and_the_json_stays_json() -> None:
    made = letter({"id": 7, "text": "\0" * 10 * MEGABYTE, "raw": b"x" * MEGABYTE})

    found = json.loads(made["record"])
    assert found["id"] == 7
    assert set(found["text"]) == {"\0"}
    assert made["truncated"]
    assert len(made["record"].encode()) <= RECORD_BYTES_MAX


def test_a_record_with_very_many_values_is_cut() -> None:
    made = letter(list(range(MEGABYTE)))

    assert made["truncated"]
    assert len(made["record"].encode()) <= RECORD_BYTES_MAX


def test_a_lone_surrogate_becomes_an_escape() -> None:
    made = letter(
        {"word": "a\ud800"}, RecordFailed("no \ud800 \0 \x1b[31m sign"), {"file": "x\udcff.csv"}
    )

    assert json.loads(made["record"]) == {"word": "a\ud800"}
    assert made["message"] == r"no \ud800 \x00 \x1b[31m sign"
    assert json.loads(made["place"]) == {"file": r"x\udcff.csv"}


@pytest.mark.rule("txtopo.dead_letters", "Rules", 5)
def test_a_message_is_bounded_and_hides_passwords() -> None:
    url = "postgresql://user:secret@host/db?sslpassword=hidden"

    message = letter(error=RecordFailed(f"see {url}"))["message"]
    long = letter(error=RecordFailed("x" * MEGABYTE))["message"]

    assert message == "see postgresql://user:***@host/db?sslpassword=***"
    assert len(long) == MESSAGE_CHARACTERS_MAX


def test_an_error_that_cannot_be_printed_is_told_by_its_class() -> None:
    class Unprintable(ValueError):
        def __str__(self) -> str:
            raise ZeroDivisionError

    made = letter(error=Unprintable())

    assert made["error"].endswith("Unprintable")
    assert made["message"] == "(it cannot be printed)"


def test_errors_are_named_as_people_write_them() -> None:
    assert letter(error=ValueError())["error"] == "ValueError"
    assert letter(error=RecordFailed())["error"] == "RecordFailed"
    assert (
        letter(error=json.JSONDecodeError("a", "b", 0))["error"] == "json.decoder.JSONDecodeError"
    )


def test_a_long_key_of_a_record_is_cut() -> None:
    place = letter(place={"topic": "t", "key": "k" * MEGABYTE, "end": {"n": ["x" * MEGABYTE]}})[
        "place"
    ]

    found = json.loads(place)
    assert found["topic"] == "t"
    assert len(found["key"]) == len(found["end"]) == PLACE_CHARACTERS_MAX


def test_equal_dead_letters_are_in_equal_order_and_offsets_count_as_numbers() -> None:
    rows = [
        dead_letter("spout", ValueError("x"), {"topic": "t", "partition": p, "offset": at}, b"")
        for p, at in [(0, 10), (0, 9), (1, 2)]
    ]

    ordered = in_order(rows)

    assert in_order(rows[::-1]) == ordered
    places = [json.loads(row[3]) for row in ordered]
    assert [(p["partition"], p["offset"]) for p in places] == [(0, 9), (0, 10), (1, 2)]


def test_the_order_does_not_follow_from_the_text_of_errors() -> None:
    """A message may have a time or a request's id, and a replay then has another."""
    place: dict[str, Json] = {"source": "spout", "stream": "default"}

    def records(messages: list[str]) -> list[str]:
        errors = zip("abc", map(RecordFailed, messages), strict=True)
        return [row[4] for row in in_order([dead_letter("b", e, place, [r]) for r, e in errors])]

    assert records(["1", "2", "3"]) == records(["3", "1", "2"]) == ['["a"]', '["b"]', '["c"]']


@pytest.mark.rule("txtopo.dead_letters", "Rules", 3)
def test_what_has_no_text_of_its_own_is_the_same_in_every_process() -> None:
    """A row of a Python Data Source may have any object; its replay has another one."""

    class Broken:
        def __str__(self) -> str:
            raise ZeroDivisionError

    def record() -> str:
        found = dead_letter("spout", ValueError(), {}, [object(), {object(): 1}, Broken()])[4]
        assert isinstance(found, str)
        return found

    first = record()
    assert first == record()
    assert "0x" not in first
    assert json.loads(first)[0] == "<object object>"
    words = [f"word {at}" for at in range(9)]
    assert json.loads(dead_letter("spout", ValueError(), {}, [set(words)])[4]) == [words]
