"""What URLs and lists of addresses name, as each part of a topology names its servers."""

from __future__ import annotations

import pytest

from state_backends.memory import open_backend
from txtopo import Avro, Fields, open_state
from txtopo.bolts import KafkaSink
from txtopo.plugins.stores import ConnectingFactory
from txtopo.servers import Server
from txtopo.sources.query.source import servers_of
from txtopo.spouts import KafkaSpout, KafkaTransactionalSpout, QueryTransactionalSpout, QueueSpout
from txtopo.streams.lookup_sources import QueryLookup
from txtopo.traits import traits_of

ID = Fields("id long")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k1:9092,k2", [("k1", 9092), ("k2", 1)]),
        ("PLAINTEXT://k1:9092, SSL://k2:9093", [("k1", 9092), ("k2", 9093)]),
        ("zk1:2181,zk2:2181/chroot", [("zk1", 2181), ("zk2", 2181)]),
        ("amqp://user:pass:word@host:5673/a@b?heartbeat=5", [("host", 5673)]),
        ("https://a/x,http://user:pw@b:8081", [("a", 1), ("b", 8081)]),
        ("[::1]:2181,[fe80::1]", [("::1", 2181), ("fe80::1", 1)]),
        ("k1:9092,k1:9092", [("k1", 9092)]),
        ("amqp://user:12,3:4@host/", [("host", 1)]),
        ("amqp://user:12/3@host/", []),
        ("amqp://user:12,3/4@host/", []),
        ("host:word,host:0,host:70000,host:٣,:5,,", []),
    ],
)
def test_a_text_names_addresses_and_no_password(text: str, expected: list[tuple[str, int]]) -> None:
    assert list(Server.of("it", text, 1).addresses) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p%40w@host/db", [Server("PostgreSQL", (("host", 5432),))]),
        ("postgresql+psycopg://h1,h2:1/db", [Server("PostgreSQL", (("h1", 1), ("h2", 1)))]),
        ("postgresql://u@/db?host=h1:1&host=h2", [Server("PostgreSQL", (("h1", 1), ("h2", 5432)))]),
        ("postgresql://[::1]:5433/db", [Server("PostgreSQL", (("::1", 5433),))]),
        ("postgresql:///db", []),
        ("postgresql:///db?host=/run/postgresql", []),
        ("postgresql:///db?host=h1&port=6432", [Server("PostgreSQL", (("h1", 6432),))]),
        ("postgresql:///db?host=h1,h2&port=1,2", []),
        ("mysql+pymysql://u:p@host:3307/db", [Server("MySQL", (("host", 3307),))]),
        ("mariadb://host/db?unix_socket=/run/mysqld.sock", []),
        ("oracle://host/db", []),
        ("oracle://host:1521/db", [Server("the database oracle", (("host", 1521),))]),
        ("sqlite:///words.db", []),
        ("no url", []),
    ],
)
def test_the_url_of_a_database_names_its_server(url: str, expected: list[Server]) -> None:
    assert list(servers_of(url)) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:pw@host/db", [Server("PostgreSQL", (("host", 5432),))]),
        ("mariadb://host/db", [Server("MariaDB", (("host", 3306),))]),
        ("redis://:pw@host/0", [Server("Redis", (("host", 6379),))]),
        ("rediss-map://host:1/0", [Server("Redis", (("host", 1),))]),
        ("sqlite:///words.db", []),
        ("delta:///folder", []),
        ("memory:", []),
    ],
)
def test_the_url_of_a_state_names_its_server(url: str, expected: list[Server]) -> None:
    assert list(open_state(url).connects_to) == expected


def test_a_factory_need_not_name_servers() -> None:
    assert not isinstance(open_backend, ConnectingFactory)


def test_spouts_sinks_and_lookups_name_their_servers() -> None:
    kafka = Server("Kafka", (("k1", 9092), ("k2", 9093)))
    shop = Server("MySQL", (("shop", 3306),))
    registry = Server("the schema registry", (("schemas", 8081),))
    url = "mysql://user:secret@shop/db"
    word = Avro('"string"', registry="http://user:secret@schemas:8081")

    said = [
        traits_of(KafkaTransactionalSpout("k1,k2:9093", "words", value=word)).connects_to,
        traits_of(KafkaSpout("k1,k2:9093", "words", "readers")).connects_to,
        traits_of(KafkaSink("k1,k2:9093", "words")).connects_to,
        traits_of(QueueSpout("amqps://user:secret@shop/", "words")).connects_to,
        traits_of(QueryTransactionalSpout(url, "words", "id", ID, settle_s=0)).connects_to,
        QueryLookup(url, "rates", as_of="since", settle_s=0).connects_to,
    ]

    queue = Server("RabbitMQ", (("shop", 5671),))
    expected = [[kafka, registry], [kafka], [kafka], [queue], [shop], [shop]]
    assert [list(each) for each in said] == expected
