"""The suite on each broken spout, and on one that is whole; run by ``test_broken_spouts.py``.

Pytest collects it only when it is named.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.testing.conformance import broken_spouts
from tests.unit.testing.conformance.broken_spouts import Whole
from tests.unit.testing.conformance.spout_sources import MemorySource
from txtopo.testing.conformance import SpoutSource, SpoutSuite

BROKEN: dict[str, Any] = {
    name: kind
    for name, kind in vars(broken_spouts).items()
    if isinstance(kind, type) and issubclass(kind, MemorySource) and hasattr(kind, "rule")
}


class _Spout:
    kind: type[MemorySource] = Whole

    @pytest.fixture
    def source(self) -> SpoutSource:
        return self.kind()


class TestWhole(_Spout, SpoutSuite):
    """Nothing is broken here, and the suite is whole."""


def suite_with(test: str) -> type:
    """Return the part of the suite that has a test."""
    (found,) = [part for part in SpoutSuite.__mro__ if test in vars(part)]
    return found


for _name, _kind in BROKEN.items():
    _parts = (_Spout, suite_with(_kind.fails))
    globals()[f"Test{_name}"] = type(f"Test{_name}", _parts, {"kind": _kind})
