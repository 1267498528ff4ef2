"""What the carrier ``resident`` refuses before anything runs, and before a session is built."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest

from tests.runtime.reliable.bolts import WORD, Forward, rows
from txtopo import Config, ReliableTopology, TopologyBuilder, TransactionalTopologyBuilder
from txtopo.errors import ConfigError
from txtopo.spouts import MemorySpout, MemoryTransactionalSpout

CONFIG = Config(carrier="resident")


def topology() -> ReliableTopology:
    builder = TopologyBuilder()
    builder.set_spout("words", MemorySpout(rows("a"), WORD))
    builder.set_bolt("forward", Forward()).shuffle_grouping("words")
    return builder.build_topology()


def test_spark_connect_is_refused_with_the_reason() -> None:
    """Whatever is not a classic session is one of Connect; there is none to be had in a test."""
    with pytest.raises(ConfigError, match="got a Spark Connect session, which can neither run"):
        topology().start(cast("Any", object()), CONFIG)


def test_a_missing_zeromq_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)

    with pytest.raises(ConfigError, match=r"pip install 'txtopo\[resident\]'"):
        topology().start(None, CONFIG)


def test_a_transactional_topology_is_refused() -> None:
    spout = MemoryTransactionalSpout({0: rows("a")}, WORD, 1)
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    builder.set_bolt("forward", Forward()).shuffle_grouping("spout")

    with pytest.raises(ConfigError, match="got a transactional one"):
        builder.build_topology().start(None, CONFIG)
