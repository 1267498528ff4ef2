"""What Python prints of an error of txtopo that a program does not catch."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys

import pytest

from txtopo import StoreUnavailable
from txtopo.uncaught import TRACEBACK, cause_line, short_text


def test_the_lines_of_libraries_are_left_out_and_the_cause_is_one_line() -> None:
    try:
        try:
            json.loads("{")
        except ValueError as error:
            raise StoreUnavailable("the answer cannot be read; nothing was written") from error
    except StoreUnavailable as error:
        lines = short_text(error).split("\n")

    assert lines[0] == "Traceback (most recent call last):"
    assert "test_uncaught.py" in lines[1]
    assert lines[-4] == (
        "txtopo.errors.StoreUnavailable: the answer cannot be read; nothing was written"
    )
    assert lines[-3].startswith("  caused by json.decoder.JSONDecodeError: Expecting property name")
    assert "test_uncaught.py" in lines[-3]
    assert lines[-2] == "  TXTOPO_TRACEBACK=1 shows the whole traceback"
    assert not [line for line in lines if "decoder.py" in line]


def test_a_cause_whose_text_the_message_repeats_is_not_shown_again() -> None:
    error = StoreUnavailable("cannot use the state: unable to open; the file; nothing was written")
    error.__cause__ = sqlite3.OperationalError("unable to open\n\tthe file")

    assert cause_line(error) is None


@pytest.mark.integration
@pytest.mark.parametrize(("traceback", "internals"), [({}, False), ({TRACEBACK: "1"}, True)])
def test_python_prints_it_unless_the_whole_traceback_is_asked_for(
    traceback: dict[str, str], *, internals: bool
) -> None:
    program = "from txtopo import open_state; open_state('words.db')"

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **traceback},
    )

    assert done.returncode == 1
    assert "txtopo.errors.TopologyError: cannot read the URL of a state" in done.stderr
    assert ("registry.py" in done.stderr) == internals
