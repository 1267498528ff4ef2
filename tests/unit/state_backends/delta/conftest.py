"""States in Delta tables of a test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.state_backends.delta.tables import COUNTED
from txtopo.state import State, open_state


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"delta://{tmp_path}/states"


@pytest.fixture
def counts(url: str) -> State:
    """A count by key in mode ``table``."""
    return open_state(url, table="counts").with_columns(*COUNTED)


@pytest.fixture
def log(url: str) -> State:
    """The same in mode ``log``."""
    return open_state(url, table="log", mode="log").with_columns(*COUNTED)
