"""What notices, on each broken spout and on one that is whole; run by ``test_broken_spouts.py``.

Pytest collects it only when it is named.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.testing.conformance import broken_spouts
from tests.unit.testing.conformance.broken_spouts import Whole
from tests.unit.testing.conformance.noticing import noticing
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


_bases = (_Spout, SpoutSuite)
for _name, _kind in BROKEN.items():
    globals()[f"Test{_name}"] = noticing(_name, _bases, [_kind.fails], kind=_kind)

# Nothing is broken here, so it passes the tests at which the others fail.
_notices = [kind.fails for kind in BROKEN.values()]
TestWhole = noticing("Whole", _bases, _notices)
