"""A failed assertion of a suite shows what it compared, in whichever module it is."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from txtopo.testing import conformance

MODULES = sorted(
    path.stem
    for path in Path(conformance.__path__[0]).glob("*.py")
    if "assert " in path.read_text()
)


@pytest.mark.parametrize("name", MODULES)
def test_pytest_rewrites_the_assertions_of_each_module(name: str) -> None:
    module = importlib.import_module(f"txtopo.testing.conformance.{name}")

    assert type(module.__loader__).__name__ == "AssertionRewritingHook"
