"""What notices, on each broken ensemble and on one that is whole; run by ``test_ensembles.py``.

Pytest collects it only when it is named.
"""

from __future__ import annotations

import pytest

from tests.unit.testing.conformance import broken_ensembles
from tests.unit.testing.conformance.broken_ensembles import BrokenEnsemble
from tests.unit.testing.conformance.noticing import noticing
from txtopo.ensemble import MemoryEnsemble
from txtopo.plugins.ensembles import MemoryTransactionalState, TransactionalState
from txtopo.testing.conformance import TransactionalStateSuite
from txtopo.testing.conformance.ensemble_fixtures import EnsembleFixtures, OpenClient

BROKEN = {
    name: kind
    for name, kind in vars(broken_ensembles).items()
    if isinstance(kind, type) and issubclass(kind, BrokenEnsemble) and kind.fails
}


class _Hasty(EnsembleFixtures):
    wait_s = 1.0
    kind = BrokenEnsemble

    @pytest.fixture
    def open_client(self) -> OpenClient:
        ensemble = MemoryEnsemble()
        return lambda topology_id: self.kind(topology_id, ensemble)

    def expire(self, client: TransactionalState) -> None:
        assert isinstance(client, MemoryTransactionalState)
        client.expire()


_bases = (_Hasty, TransactionalStateSuite)
for _name, _kind in BROKEN.items():
    globals()[f"Test{_name}"] = noticing(_name, _bases, [_kind.fails], kind=_kind)

# Nothing is broken here, so it passes the tests at which the others fail.
_notices = [kind.fails for kind in BROKEN.values()]
TestBrokenEnsemble = noticing("BrokenEnsemble", _bases, _notices)
