from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.servers.spark_connect import ConnectClient


@pytest.fixture(scope="module")
def client() -> Iterator[ConnectClient]:
    """A process that is a client of Spark Connect; a session does not outlive its server."""
    with ConnectClient() as process:
        yield process
