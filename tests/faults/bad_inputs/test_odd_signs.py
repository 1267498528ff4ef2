"""NUL and lone surrogates in URLs and paths are refused, with a message, when they are declared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from txtopo import Config, ZooKeeper
from txtopo.errors import ConfigError, TopologyError
from txtopo.spouts import (
    DeltaTransactionalSpout,
    FileSpout,
    FilesTransactionalSpout,
    QueryTransactionalSpout,
    QueueSpout,
)
from txtopo.state import open_state
from txtopo.testing.conformance.driver import claim_of
from txtopo.tuples import Fields

SIGNS = ["\0", "\ud800"]
STATES = [
    "sqlite:////folder/x{}y.db",
    "sqlite:////folder/x.db?timeout={}",
    "delta:////folder/d{}e",
    "memory:a{}b",
    "redis://:secret@host:1/0?x={}",
    "redis://:sec{}ret@host:1/0",
    "redis-map://ho{}st:1/0",
    "postgresql://user:sec{}ret@host:1/database",
    "postgresql://user:secret@ho{}st:1/database",
    "mysql://user:secret@host:1/data{}base",
    "s3://buck{}et/folder",
]
SOURCES: list[Callable[[str], Any]] = [
    lambda sign: FilesTransactionalSpout(f"/folder/a{sign}b", Fields("a string")),
    lambda sign: FilesTransactionalSpout(["/folder", f"file:///a{sign}"], Fields("a string")),
    lambda sign: FileSpout(f"/folder/a{sign}b"),
    lambda sign: DeltaTransactionalSpout(f"/folder/a{sign}b", Fields("a string")),
    lambda sign: QueryTransactionalSpout(
        f"sqlite:////folder/a{sign}.db", "SELECT 1 AS a", "a", Fields("a long"), settle_s=1
    ),
    lambda sign: QueueSpout(f"amqp://user:sec{sign}ret@host", "queue"),
    lambda sign: QueueSpout("amqp://user:secret@host", f"queue{sign}"),
    lambda sign: Config(zookeeper=f"host:1{sign}"),
    lambda sign: Config(zookeeper=ZooKeeper(dir=f"/folder/a{sign}b")),
    lambda sign: Config(zookeeper=ZooKeeper(auth=f"user:sec{sign}ret")),
]


@pytest.mark.parametrize("sign", [*SIGNS, "%00"])
@pytest.mark.parametrize("url", STATES)
def test_a_url_of_a_state_with_an_odd_sign_is_refused(url: str, sign: str) -> None:
    with pytest.raises(
        TopologyError, match="neither NUL and without half of a character"
    ) as caught:
        open_state(url.format(sign), table="counts")

    str(caught.value).encode()
    assert "ret@" not in str(caught.value)


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("make", SOURCES)
def test_a_path_or_setting_with_an_odd_sign_is_refused(
    make: Callable[[str], Any], sign: str
) -> None:
    with pytest.raises(ConfigError, match="NUL, or half of a character") as caught:
        make(sign)

    assert "ret@" not in str(caught.value)


@pytest.mark.parametrize("sign", ["\n", "\x7f"])
def test_a_folder_that_delta_cannot_name_is_refused(sign: str, tmp_path: Path) -> None:
    """It was said to be damaged."""
    with pytest.raises(TopologyError, match=r"without percent signs.*control characters"):
        open_state(f"delta://{tmp_path}/a{sign}b", table="counts")


@pytest.mark.parametrize("sign", [" ", "é", "\n", "%", "'", '"', "😀"])
def test_other_signs_are_part_of_a_path(sign: str, tmp_path: Path) -> None:
    state = open_state(f"sqlite:///{tmp_path}/a{sign}b.db", table="counts")

    backend = state.open()
    backend.create()

    assert backend.claim(claim_of("topology", 1)).epoch == 1
    assert (tmp_path / f"a{sign}b.db").exists()
    backend.close()


def test_an_option_that_redis_py_does_not_know_is_refused() -> None:
    """It was a bare TypeError at the first command."""
    with pytest.raises(TopologyError, match=r"cannot read the URL of a state.*TypeError"):
        open_state("redis://:secret@host:1/0?x=1", table="counts").open()
