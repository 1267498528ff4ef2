"""What cannot be on Spark Connect is refused before anything runs, with what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.servers.spark_connect import ConnectClient, SparkConnectServer
from tests.services.connect import programs
from txtopo import Config
from txtopo.config import Carrier
from txtopo.errors import ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.service("spark-connect")]


@pytest.fixture
def url(connect_server: SparkConnectServer) -> str:
    return connect_server.url


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'states.db'}"


@pytest.mark.parametrize(
    ("carrier", "reason"),
    [
        ("rdd", r"Spark Connect session, which has no RDDs; use carrier='dataframe' or 'auto'"),
        ("resident", r"cannot run a function for the lifetime .* use carrier='local', or"),
    ],
)
def test_a_carrier_of_classic_spark_is_refused(
    client: ConnectClient, url: str, store: str, carrier: Carrier, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        client.call(programs.start_with, url, store, Config(carrier=carrier, zookeeper="memory"))


def test_an_embedded_zookeeper_is_refused(client: ConnectClient, url: str, store: str) -> None:
    with pytest.raises(ConfigError, match=r"needs the JVM of a classic .* use 'host:port' of a"):
        client.call(programs.start_with, url, store, Config())


def test_an_at_least_once_topology_is_refused(client: ConnectClient, url: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot run .* use carrier='local', or a classic"):
        client.call(programs.start_at_least_once, url)


def test_states_that_spark_merges_are_refused(
    client: ConnectClient, url: str, tmp_path: Path
) -> None:
    state = f"delta://{tmp_path / 'states'}?writer=spark"

    with pytest.raises(ConfigError, match=r"cannot write states in Delta: .* without \?writer="):
        client.call(programs.add_up_days, url, state)


def test_a_streaming_query_is_refused_with_our_reason_behind_that_of_pyspark(
    client: ConnectClient, url: str, store: str, tmp_path: Path
) -> None:
    said = client.call(programs.stream_words, url, store, str(tmp_path))

    assert "foreach_batch needs classic Spark; got a Spark Connect session" in said
    assert "give the topology a spout that reads its source itself" in said


def test_foreach_batch_by_hand_is_refused(client: ConnectClient, url: str, store: str) -> None:
    with pytest.raises(ConfigError, match=r"foreach_batch needs classic .* on a classic session"):
        client.call(programs.write_by_hand, url, store)


def test_a_stopped_session_is_refused(client: ConnectClient, url: str, store: str) -> None:
    with pytest.raises(ConfigError, match=r"session has been stopped; .* with a new session"):
        client.call(programs.start_stopped, url, store)
