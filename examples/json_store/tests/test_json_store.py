"""Both plug-ins pass the suites that txtopo ships; the schemes are known by their entry points."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from json_store.text_folder import TextFolder

from txtopo.testing.conformance import BackingMapSuite, StateBackendSuite


class TestStateFile(StateBackendSuite):
    """It reads and writes all of a state for each commit."""

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"json:{tmp_path}"


class TestTextFolder(BackingMapSuite):
    """Each key that is put is a file that is flushed to disk."""

    @pytest.fixture
    def open_map(self, tmp_path: Path) -> Callable[[], TextFolder]:
        return lambda: TextFolder(f"json-map:{tmp_path}")
