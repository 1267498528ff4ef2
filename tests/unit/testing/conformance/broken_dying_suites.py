"""What notices deaths, on what is not atomic and on what is whole; run by ``test_dying.py``.

Pytest collects it only when it is named.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.unit.testing.conformance import dying_stores
from tests.unit.testing.conformance.broken_suites import suite_with
from tests.unit.testing.conformance.dying_stores import (
    ComparingFiles,
    FileEnsemble,
    SqliteRows,
    TextFiles,
)
from tests.unit.testing.conformance.noticing import noticing
from txtopo.state import register_backend
from txtopo.testing.conformance.driver import StoreFixtures
from txtopo.testing.conformance.dying_suites import DyingPutsSuite, DyingSuite, RaisingSuite
from txtopo.testing.conformance.ensemble_dying_suites import DyingEnsembleSuite
from txtopo.testing.conformance.ensemble_fixtures import EnsembleFixtures, OpenClient
from txtopo.testing.conformance.expiry_dying_suites import DyingExpirySuite
from txtopo.testing.conformance.map_dying_suites import DyingMapSuite, RaisingMapSuite
from txtopo.testing.conformance.map_fixtures import MapFixtures, OpenMap
from txtopo.testing.conformance.pace import DEATHS_MIN

BROKEN: dict[str, Any] = {
    name: kind for name, kind in vars(dying_stores).items() if getattr(kind, "fails", "")
}


class _InAFile(StoreFixtures):
    deaths: ClassVar[int | None] = DEATHS_MIN  # what a very slow store gets by default
    many = 400
    store = SqliteRows

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        scheme = self.store.__name__.lower()
        register_backend(scheme, self.store)
        return f"{scheme}:{tmp_path}/states.db"


class _InFiles(MapFixtures):
    store = TextFiles
    keys_max = 1

    @pytest.fixture
    def open_map(self, tmp_path: Path) -> OpenMap:
        kind = self.store
        return lambda: kind(tmp_path)


class _Nodes(EnsembleFixtures):
    store = FileEnsemble

    @pytest.fixture
    def open_client(self, tmp_path: Path) -> OpenClient:
        kind = self.store
        return lambda topology_id: kind(topology_id, tmp_path / "nodes.json")


def suite_of(kind: Any) -> tuple[type, type]:
    """Return the fixtures for what is broken, and the suite that has to notice."""
    if issubclass(kind, SqliteRows):
        return _InAFile, suite_with(kind.fails)
    if issubclass(kind, TextFiles):
        return _InFiles, DyingMapSuite
    return _Nodes, DyingEnsembleSuite


def is_slow(kind: Any) -> bool:
    """Return whether a clock kills the writers: how many of them notice depends on the machine."""
    return "at_any_time" in kind.fails


for _name, _kind in BROKEN.items():
    _body = {"deaths": _kind.deaths} if issubclass(_kind, SqliteRows) else {}
    if is_slow(_kind):
        _body["pytestmark"] = pytest.mark.slow
    globals()[f"Test{_name}"] = noticing(
        _name, suite_of(_kind), [_kind.fails], store=_kind, **_body
    )

# Nothing is broken in these, so they pass the tests at which the others fail.
_notices = [kind.fails for kind in BROKEN.values() if not is_slow(kind)]
_late = [kind.fails for kind in BROKEN.values() if is_slow(kind)]
_stores = DyingSuite, DyingPutsSuite, DyingExpirySuite, RaisingSuite
_maps = DyingMapSuite, RaisingMapSuite
TestSqliteRows = noticing("SqliteRows", (_InAFile, *_stores), _notices)
TestSlowSqliteRows = noticing(
    "SlowSqliteRows", (_InAFile, *_stores), _late, pytestmark=pytest.mark.slow
)
TestComparingFiles = noticing("ComparingFiles", (_InFiles, *_maps), _notices, store=ComparingFiles)
TestFileEnsemble = noticing("FileEnsemble", (_Nodes, DyingEnsembleSuite), _notices)
