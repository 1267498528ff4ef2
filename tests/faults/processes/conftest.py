"""The input of the kill tests, cut into files once."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.flights import cut, flights_csv

HALF, EIGHTH = 170_000, 42_000


@pytest.fixture(scope="session")
def flights_input(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an eighth of the flights, with which a process is soon done."""
    return first_of_them(EIGHTH, tmp_path_factory)


@pytest.fixture(scope="session")
def flights_half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of half of the flights, for kills on Spark, whose batches take longer."""
    return first_of_them(HALF, tmp_path_factory)


@pytest.fixture(scope="session")
def flights_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all flights, for many kills at random moments."""
    return first_of_them(None, tmp_path_factory)


def first_of_them(number: int | None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the first flights, below a line with the names of the columns."""
    folder = tmp_path_factory.mktemp("flights") / "input"
    lines = flights_csv().splitlines(keepends=True)
    cut(folder, b"".join(lines[: None if number is None else number + 1]))
    return folder
