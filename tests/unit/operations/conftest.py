"""Deployments in memory, and in SQLite or PostgreSQL with a real ZooKeeper."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.operations.deployment import Deployment
from txtopo.state import StateKind, open_state

Make = Callable[..., Deployment]
KINDS = ("memory", pytest.param("zookeeper", marks=pytest.mark.service("zookeeper")))
POSTGRESQL = pytest.param(
    "postgresql", marks=[pytest.mark.service("zookeeper"), pytest.mark.service("postgresql")]
)


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Make a deployment of one kind; several are independent of each other."""
    return maker(request, tmp_path, request.param)


@pytest.fixture(params=("memory", POSTGRESQL))
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Make a deployment in memory, or in PostgreSQL with a real ZooKeeper."""
    return maker(request, tmp_path, request.param)


@pytest.fixture
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Make a deployment in memory."""
    return maker(request, tmp_path, "memory")


def maker(request: pytest.FixtureRequest, folder: Path, where: str) -> Make:
    def make(opaque: bool = False, kind: StateKind = "opaque", group: int = 1) -> Deployment:
        id = uuid.uuid4().hex
        urls = [f"sqlite:///{folder}/{id}-{at}.db" for at in range(2)]
        if where == "memory":
            urls = ["memory:", "memory:"]
        if where == "postgresql":
            urls = [request.getfixturevalue("postgresql").create_schema(f"verbs_{id}")] * 2
        first, second = (open_state(url, kind) for url in urls)
        deployment = Deployment((first, second), opaque=opaque, id=id, group=group)
        if where != "memory":
            deployment.hosts = request.getfixturevalue("zookeeper").hosts
        return deployment

    return make
