"""A process that kills itself at the switch of a sequence: each row counts once."""

from __future__ import annotations

import signal
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text

from tests.harness.processes import Child
from tests.harness.servers.zookeeper import ZooKeeperProcess
from txtopo.state import open_state

pytestmark = [pytest.mark.kills, pytest.mark.slow, pytest.mark.timeout(300)]
PROCESS = "tests.faults.processes.sequence_process"
IN_FILES, IN_ALL = 6, 11
SWITCH = IN_FILES // 2 + 1
# Before and after each of the writes that belong to the switch, in the order of the protocol.
POINTS = (
    "store-metadata.before",
    "store-metadata.after",
    "process.after",
    "write.before:count.count",
    "write.after:count.count",
    "advance.before",
    "advance.after",
)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.row(13, 22, 31, 46)
def test_a_process_killed_at_the_switch_loses_and_doubles_nothing(
    point: str, tmp_path: Path, zookeeper: ZooKeeperProcess
) -> None:
    """At each passing of the point: one of them is that of the switch."""
    hosts = f"{zookeeper.hosts}/{uuid4().hex}"
    url = f"sqlite:///{tmp_path / 'words.db'}"
    rows = [(at, f"word-{at}") for at in range(1, IN_ALL + 1)]
    lines = "".join(f"{id},{word}\n" for id, word in rows[:IN_FILES])
    (tmp_path / "old.csv").write_text(f"id,word\n{lines}")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE words (id BIGINT PRIMARY KEY, word TEXT)"))
        for id, word in rows:
            connection.execute(text(f"INSERT INTO words VALUES ({id}, '{word}')"))
    engine.dispose()
    arguments = (str(tmp_path), url, hosts, str(IN_FILES))

    # Each start passes the point once before it dies at the second passing, so it gets further.
    for _ in range(SWITCH + 1):
        with Child(PROCESS, *arguments, point, "2") as child:
            child.end_with(0, -signal.SIGKILL)
    with Child(PROCESS, *arguments) as child:
        child.finish()

    with open_state(url, table="count").reader() as reader:
        assert dict(reader.items()) == {word: 1 for _, word in rows}
    asked = (tmp_path / "begins").read_text().split()
    assert set(asked) == {str(IN_FILES)}
