"""What the kill tests share: the input, cut once."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.flights import cut, flights_csv


@pytest.fixture(scope="session")
def flights_input(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all flights."""
    folder = tmp_path_factory.mktemp("flights") / "input"
    cut(folder, flights_csv())
    return folder
