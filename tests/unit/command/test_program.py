"""The program turns what happens into an exit code."""

from __future__ import annotations

import pytest

from txtopo import __version__
from txtopo.command.program import (
    DEPOSED,
    FAILED,
    REFUSED,
    UNREACHABLE,
    WRONG_CALL,
    code_of,
    in_shell_words,
    run,
)
from txtopo.errors import (
    ConfigError,
    CoordinatorUnavailable,
    FencedError,
    PoisonBatchError,
    StoreUnavailable,
    TooManyDeadLetters,
)


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0

    assert __version__ in capsys.readouterr().out


def test_an_unknown_verb_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fly"]) == WRONG_CALL

    assert "No such command 'fly'" in capsys.readouterr().err


def test_each_kind_of_error_has_a_code() -> None:
    assert code_of(ConfigError("x")) == WRONG_CALL
    assert code_of(PoisonBatchError("x")) == REFUSED
    assert code_of(CoordinatorUnavailable("x")) == UNREACHABLE
    assert code_of(StoreUnavailable("x")) == UNREACHABLE
    assert code_of(TooManyDeadLetters("x")) == FAILED


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("start once with Config(allow_change=True)", "start once with --set allow_change=true"),
        ("Config(allow_change=['columns', 'states'])", "--set allow_change=columns,states"),
        ("call txtopo.operations.rebuild", "run txtopo rebuild"),
        ("in txtopo.operations.plan", "in txtopo.operations.plan"),
    ],
)
def test_messages_name_options_and_verbs_of_the_shell(written: str, shown: str) -> None:
    assert in_shell_words(written) == shown


def test_a_deposed_leader_has_a_code_of_its_own_so_that_a_supervisor_starts_it_again() -> None:
    assert code_of(FencedError("x")) == DEPOSED != REFUSED
