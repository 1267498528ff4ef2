"""What is printed: plain and stable without a terminal, and never a control character."""

from __future__ import annotations

import json

import pytest

from txtopo.command.output import (
    cell,
    duration,
    print_json,
    print_line,
    print_note,
    print_pairs,
    print_table,
)

HOSTILE = "\x1b[31mred\x07\n\u202etxet\x9b\x7f"


def test_no_control_character_of_a_value_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["topology", HOSTILE], [["a", HOSTILE]])
    print_pairs({"cause": HOSTILE})
    print_json({"cause": HOSTILE})
    print_line(HOSTILE)
    print_note(HOSTILE)

    printed = "".join(capsys.readouterr())
    assert all(character.isprintable() or character == "\n" for character in printed)
    assert "\\x1b[31mred" in printed


def test_json_is_that_of_the_value(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"cause": HOSTILE})

    assert json.loads(capsys.readouterr().out) == {"cause": HOSTILE}


def test_a_table_is_plain_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["topology", "txid"], [["words", 81_204], ["a\tb", None]], right=["txid"])

    assert capsys.readouterr().out == "TOPOLOGY    TXID\nwords     81,204\na\\tb           -\n"


def test_a_table_without_rows_may_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["topology"], [], empty="no topologies")

    assert capsys.readouterr().out == "no topologies\n"


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (True, "yes"), (12_400.4, "12,400"), (0.5, "0.5"), (7, "7")]
)
def test_values_are_written_for_a_person(value: object, text: str) -> None:
    assert cell(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.009, "9 ms"), (2.5, "2.5 s"), (12_000, "3 h 20 min"), (90_000, "1 d 1 h")],
)
def test_times_are_written_for_a_person(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
