"""The suites that are there to fail, which run once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.testing.conformance.failures import Failures, failures_of


@pytest.fixture(scope="session")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Failures:
    """What failed with which words, by suite and test: all suites in one process of their own."""
    suites = sorted(Path(__file__).parent.glob("broken_*suites.py"))
    return failures_of(suites, tmp_path_factory.mktemp("broken"))
