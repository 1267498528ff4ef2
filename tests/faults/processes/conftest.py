"""The input of the kill tests, cut into files once."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.flights import cut, flights_csv

HALF = 170_000


@pytest.fixture(scope="session")
def flights_input(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all flights."""
    folder = tmp_path_factory.mktemp("flights") / "input"
    cut(folder, flights_csv())
    return folder


@pytest.fixture(scope="session")
def flights_half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of half of the flights, for runs on Spark, whose batches take longer."""
    folder = tmp_path_factory.mktemp("flights-half") / "input"
    cut(folder, b"".join(flights_csv().splitlines(keepends=True)[: HALF + 1]))
    return folder
