"""A topology with a state in Delta where the package deltalake cannot be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys

sys.modules["deltalake"] = None

from tests.harness.spark_session import open_test_session
from txtopo import (
    Config, Count, Fields, PersistentAggregate, TransactionalTopologyBuilder, open_state
)
from txtopo.spouts import MemoryTransactionalSpout

words = [["to"], ["be"], ["or"], ["not"], ["to"], ["be"]] * 2
spout = MemoryTransactionalSpout({0: words}, Fields("word string"), 4)
counts = open_state(f"delta://{sys.argv[1]}", table="counts")
builder = TransactionalTopologyBuilder("words", "spout", spout)
count = PersistentAggregate(counts, "word", Count())
builder.set_bolt("count", count).fields_grouping("spout", "word")
config = Config(carrier="rdd", zookeeper="memory", group_txids_max=1)
with builder.build_topology().start(open_test_session(), config=config) as run:
    run.process_all_available()
with counts.reader() as reader:
    assert dict(reader.items()) == {"to": 4, "be": 4, "or": 2, "not": 2}, dict(reader.items())
    assert reader.ledger.txid == 3, reader.ledger
"""


@pytest.mark.slow
@pytest.mark.service("delta-spark")
@pytest.mark.rule("state_backends.delta.by_session", "Rules", 3)
def test_spark_writes_a_state_in_delta_and_python_reads_it(tmp_path: Path) -> None:
    _run(PROGRAM, str(tmp_path / "states"))


SUITES = """
import sys

sys.modules["deltalake"] = None

import pytest

sys.exit(pytest.main(["-q", sys.argv[1]]))
"""


@pytest.mark.slow
@pytest.mark.service("delta-spark")
@pytest.mark.timeout(7200)
def test_the_suites_of_stores_pass_without_delta_rs() -> None:
    _run(SUITES, str(Path(__file__).with_name("without_delta_rs.py")))


def _run(program: str, argument: str) -> None:
    command = [sys.executable, "-c", program, argument]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[4])
