"""Asks in an interpreter of its own what each part of txtopo says without the package of its extra.

``python -P extras.py [module …]`` blocks the modules, uses each part, and prints JSON: pairs of the
extra and what was said. It imports nothing but txtopo, so it runs in any environment.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from txtopo import (
    Avro,
    Config,
    Count,
    CountDistinct,
    Fields,
    Page,
    PersistentAggregate,
    ProgressBar,
    Protobuf,
    TransactionalTopologyBuilder,
    TxtopoError,
    ZooKeeper,
    open_session,
    open_state,
)
from txtopo.bolts import KafkaSink
from txtopo.spouts import (
    DeltaDataFrameSpout,
    DeltaTransactionalSpout,
    KafkaOpaqueSpout,
    KafkaSpout,
    KafkaTransactionalSpout,
    MemoryTransactionalSpout,
    QueryTransactionalSpout,
    QueueSpout,
)
from txtopo.yaml.loading import topology_from_yaml

WORD = Fields("word string")


def start(aggregate: Any, **settings: Any) -> None:
    """Start a topology that would count words in memory."""
    spout = MemoryTransactionalSpout({0: [["a"]]}, WORD, 1)
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    counts = PersistentAggregate(open_state("memory:", table="counts"), "word", aggregate)
    builder.set_bolt("counts", counts).fields_grouping("spout", "word")
    config = Config(**{"carrier": "local", "zookeeper": "memory", **settings})
    builder.build_topology().start(config=config).stop()


def opened(url: str) -> Callable[[], object]:
    """Return what opens a state."""
    return lambda: open_state(url, table="counts").open()


def remote_session(url: str) -> None:
    """Open the session that the environment names."""
    os.environ["SPARK_REMOTE"] = url
    try:
        open_session()
    finally:
        del os.environ["SPARK_REMOTE"]


def query(url: str) -> None:
    """Connect a query to its database."""
    QueryTransactionalSpout(url, "words", "id", Fields("id long"), settle_s=0)._source.engine()


LOGIN = {"mechanism": "DIGEST-MD5", "username": "a", "password": "b"}

USES: list[tuple[str, Callable[[], object]]] = [
    ("avro", lambda: Avro('"string"', registry="http://host")),
    ("protobuf", lambda: Protobuf(object, registry="http://host")),
    ("conformance", lambda: importlib.import_module("txtopo.testing.conformance")),
    ("connect", lambda: remote_session("sc://host")),
    ("delta", opened("s3://bucket/folder")),
    ("delta", lambda: DeltaTransactionalSpout("folder", WORD)),
    ("delta", lambda: DeltaDataFrameSpout("folder", WORD)),
    ("kafka", lambda: KafkaTransactionalSpout("host:1", "words")),
    ("kafka", lambda: KafkaOpaqueSpout("host:1", "words")),
    ("kafka", lambda: KafkaSpout("host:1", "words", "readers")),
    ("kafka", lambda: KafkaSink("host:1", "words")),
    *(("mysql", opened(f"{scheme}://host/words")) for scheme in ("mysql", "mariadb")),
    ("mysql", lambda: query("mysql://host/words")),
    ("postgres", opened("postgresql://host/words")),
    ("postgres", lambda: query("postgresql://host/words")),
    ("progress", ProgressBar),
    ("rabbitmq", lambda: QueueSpout("amqp://host", "words")),
    ("yaml", lambda: topology_from_yaml("words.yaml")),
    *(("redis", opened(f"{scheme}://host/0")) for scheme in ("redis", "rediss", "redis-map")),
    ("resident", lambda: start(Count(), carrier="resident")),
    (
        "sasl",
        lambda: start(
            Count(),
            zookeeper=ZooKeeper("127.0.0.1:1", auth=LOGIN),
        ),
    ),
    ("sketches", lambda: start(CountDistinct("word"))),
    ("ui", lambda: start(Count(), page=Page(port=0))),
]
"""What needs an extra, with its name."""


def said(use: Callable[[], object]) -> str:
    """Use a part of txtopo, and return its complaint."""
    try:
        use()
    except (TxtopoError, SystemExit) as error:
        return str(error)
    return "nothing"


if __name__ == "__main__":
    blocked: dict[str, Any] = dict.fromkeys(sys.argv[1:])
    sys.modules.update(blocked)
    print(json.dumps([(extra, said(use)) for extra, use in USES]))
