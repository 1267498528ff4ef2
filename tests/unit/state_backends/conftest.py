"""A small disk, for the tests of stores that run out of room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.servers.small_disk import SmallDisk, small_disk

DISK_BYTES = 64 * 2**20


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    """A file system of its own; the test is skipped where none may be mounted."""
    try:
        with small_disk(DISK_BYTES) as disk:
            yield disk
    except PermissionError as error:
        pytest.skip(f"no file system can be mounted here: {error}")
