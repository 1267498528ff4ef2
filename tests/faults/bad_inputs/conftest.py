"""Fixtures of storages: in memory, in SQLite, in PostgreSQL and in MariaDB."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.harness.runs import Storage

_SQLITE = pytest.param("sqlite", marks=pytest.mark.integration)
_POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.service("postgresql"))
_MARIADB = pytest.param("mariadb", marks=pytest.mark.service("mariadb"))
_numbers = itertools.count()


@pytest.fixture(params=["memory", _SQLITE, _POSTGRESQL, _MARIADB])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A new storage in each store."""
    if request.param == "memory":
        return Storage.in_memory()
    return _on_disk(request, tmp_path)


@pytest.fixture(params=[_SQLITE, _POSTGRESQL, _MARIADB])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A new storage in each database."""
    return _on_disk(request, tmp_path)


def _on_disk(request: pytest.FixtureRequest, folder: Path) -> Storage:
    if request.param == "sqlite":
        return Storage.in_sqlite(folder)
    server = request.getfixturevalue(request.param)
    return Storage(server.create_schema(f"bad{next(_numbers)}"))
