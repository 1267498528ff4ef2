"""``txtopo help``: the reference of the Python API in a shell."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.unit.test_exports import FACES
from txtopo.command.group import commands
from txtopo.command.reference import MODULES, public_names

# What only txtopo itself imports from, or what needs pytest.
NOT_FOR_USERS = {
    *("txtopo.builders", "txtopo.topology", "txtopo.ensemble", "txtopo.testing.conformance"),
}


def asked(*arguments: str) -> tuple[int, str]:
    """Return the exit code and what ``txtopo help`` prints."""
    done = CliRunner().invoke(commands, ["help", *arguments])
    return done.exit_code, done.output


def test_it_lists_the_modules_that_users_import_from() -> None:
    assert {*FACES} - NOT_FOR_USERS <= {*MODULES}


def test_each_public_name_has_a_line_and_a_text() -> None:
    _, listed = asked()

    for name in {each.name for each in public_names()}:
        assert f"\n  {name} " in listed
        code, text = asked(name)
        assert code == 0
        assert f"import {name}\n\n{name}" in text


def test_a_method_is_shown_with_its_signature() -> None:
    code, text = asked("StreamBuilder.source")

    assert code == 0
    assert "    parallelism: int = 1,\n    *,\n    event_time: str | None = None,\n" in text
    assert "Args:\n    id: Id of the spout." in text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Cuont", "there is no public name 'Cuont'; did you mean 'Count'?"),
        ("zzz", "there is no public name 'zzz'; `txtopo help` lists them"),
        ("Config.zzz", "Config has no public method or attribute 'zzz'"),
    ],
)
def test_an_unknown_name_is_answered_with_a_similar_one(name: str, message: str) -> None:
    code, text = asked(name)

    assert code == 2
    assert message in text
