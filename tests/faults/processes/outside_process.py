"""Read tables of one database again and again, as somebody does who knows nothing of txtopo.

It uses nothing but the driver of the database. Each sample is one transaction, and says of each
table its txid in ``txtopo_ledger``, the attempt that wrote it, and the sums over its rows. No
sample is taken twice, and none is left out: if the connection fails, it says ``lost`` instead. It
ends when its input is closed.
"""

from __future__ import annotations

import json
import select
import sqlite3
import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from tests.harness.processes import say

# Without a pause it would take one of two cores from those that it watches.
PAUSE_S = 0.001
BEGIN = {
    "sqlite": ("BEGIN",),
    "postgresql": ("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",),
    "mariadb": (
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
    ),
}
Numbers = list[list[int]]
"""Of each table: txid, epoch, attempt, numbers and total."""


def kind_of(url: str) -> str:
    """Return the kind of store that a URL leads to."""
    return urlsplit(url).scheme.partition("+")[0]


def failures_of(kind: str) -> tuple[type[Exception], ...]:
    """Return how the driver of a database fails if the server does; a file has none."""
    if kind == "postgresql":
        import psycopg

        return psycopg.OperationalError, psycopg.InterfaceError
    if kind == "mariadb":
        import pymysql  # type: ignore[import-untyped]

        return pymysql.err.OperationalError, pymysql.err.InterfaceError
    if kind == "redis":
        import redis

        return redis.ConnectionError, redis.TimeoutError
    return ()


def connect(url: str) -> Callable[[list[str]], Numbers]:
    """Connect, and return the function that takes a sample of some tables."""
    kind, parts = kind_of(url), urlsplit(url)
    if kind == "redis":
        import redis

        return partial(redis_sample, redis.Redis.from_url(url, decode_responses=True))
    if kind == "sqlite":
        file = sqlite3.connect(parts.path.removeprefix("/"), 60, isolation_level=None)
        return partial(sql_sample, file.cursor(), BEGIN[kind])
    place: dict[str, Any] = {"host": parts.hostname, "port": parts.port, "autocommit": True}
    place |= {"user": parts.username, "password": parts.password}
    if kind == "postgresql":
        import psycopg

        opened = psycopg.connect(**place, dbname=parts.path[1:]).cursor()
    else:
        import pymysql

        opened = pymysql.connect(**place, database=parts.path[1:], ssl_disabled=True).cursor()
    return partial(sql_sample, opened, BEGIN[kind])


def sql_sample(cursor: Any, begin: tuple[str, ...], tables: list[str]) -> Numbers:
    """Take a sample of tables in an SQL database."""
    for statement in begin:
        cursor.execute(statement)
    cursor.execute("SELECT state, txid, writer_epoch, attempt FROM txtopo_ledger")
    ledgers = {state: ledger for state, *ledger in cursor.fetchall()}
    found = []
    for table in tables:
        cursor.execute(f"SELECT sum(numbers), sum(total) FROM {table}")
        found.append([int(each or 0) for each in (*ledgers[table], *cursor.fetchone())])
    cursor.execute("COMMIT")
    return found


def redis_sample(client: Any, tables: list[str]) -> Numbers:
    """Take a sample of states in Redis, in one MULTI."""
    with client.pipeline(transaction=True) as pipe:
        for table in tables:
            pipe.get(f"txtopo:{{{table}}}:head").hvals(f"txtopo:{{{table}}}:rows")
        answers = pipe.execute()
    found = []
    for head, rows in zip(answers[::2], answers[1::2], strict=True):
        ledger = json.loads(head)["ledger"]
        sums = [sum(column) for column in zip(*(json.loads(row)[1] for row in rows), strict=True)]
        found.append([*(ledger[name] for name in ("txid", "writer_epoch", "attempt")), *sums])
    return found


def main(url: str, *tables: str) -> None:
    failures = failures_of(kind_of(url))
    sample: Callable[[list[str]], Numbers] | None = connect(url)
    say("ready")
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        try:
            if sample is None:
                sample = connect(url)
            say("sample", states=sample(list(tables)))
        except failures as error:
            say("lost", error=repr(error))
            sample = None


if __name__ == "__main__":
    main(*sys.argv[1:])
