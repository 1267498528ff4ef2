"""A small disk and schemas of PostgreSQL, for the tests of stores; which of them are slow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.small_disk import SmallDisk, small_disk

DISK_BYTES = 64 * 2**20
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that a suite has for every store, and that are too slow for each of ours."""
    # Its numbers are those of this run, so it is imported once that has begun.
    from tests.unit.state_backends.extent import is_slow

    for item in items:
        if isinstance(item, pytest.Function) and is_slow(item.cls or object, item.originalname):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    """A file system of its own; the test is skipped where none may be mounted."""
    try:
        with small_disk(DISK_BYTES) as disk:
            yield disk
    except PermissionError as error:
        pytest.skip(f"no file system can be mounted here: {error}")


@pytest.fixture(scope="module")
def postgresql_database(postgresql: PostgresServer) -> Iterator[sa.Engine]:
    """One database for all tests of a module: making one takes a tenth of a second."""
    engine = sa.create_engine(postgresql.create_database(f"states{next(_numbers)}"))
    yield engine
    engine.dispose()


@pytest.fixture
def postgresql_schema(postgresql_database: sa.Engine) -> str:
    """The URL of an empty schema, in which tables are made that name none."""
    name = f"test{next(_numbers)}"
    with postgresql_database.begin() as connection:
        connection.execute(sa.text(f"CREATE SCHEMA {name}"))
    url = postgresql_database.url.update_query_dict({"options": f"-csearch_path={name}"})
    return url.render_as_string(hide_password=False)
