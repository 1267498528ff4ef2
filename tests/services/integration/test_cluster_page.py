"""The program of run-on-a-cluster.md for spark-submit runs its topology until SIGTERM."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.polling import wait_until
from tests.unit.test_layout import ROOT
from tests.unit.test_pages import blocks_of, committed, environment

PAGE = ROOT / "docs" / "how-to" / "run-on-a-cluster.md"

# Stands for docker/topologies/word_count.py, which needs Kafka and PostgreSQL.
WORD_COUNT = """
from txtopo import Count, Fields, PersistentAggregate, TransactionalTopologyBuilder, open_state
from txtopo.spouts import MemoryTransactionalSpout


def topology():
    spout = MemoryTransactionalSpout({0: [["cat"], ["dog"]]}, Fields("word string"), 1)
    builder = TransactionalTopologyBuilder("word-count", "words", spout)
    counts = PersistentAggregate(open_state("sqlite:///words.db"), "word", Count())
    builder.set_bolt("counts", counts).fields_grouping("words", "word")
    return builder.build_topology()
"""


def catches_sigterm(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has a handler of SIGTERM; it must not end before."""
    assert process.poll() is None
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = int(re.findall(r"^SigCgt:\t(\w+)$", status, re.MULTILINE)[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


@pytest.mark.kills
def test_the_program_runs_until_sigterm_and_ends_well(tmp_path: Path) -> None:
    (program,) = (block.text for block in blocks_of(PAGE.read_text()) if block.language == "python")
    (tmp_path / "word_count.py").write_text(WORD_COUNT)
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "txtopo.toml").write_text('carrier = "local"\nzookeeper.hosts = "memory"\n')
    log = tmp_path / "log"
    with (
        log.open("w") as file,
        subprocess.Popen(
            [sys.executable, "program.py"], cwd=tmp_path, env=environment(), stderr=file
        ) as started,
    ):
        try:
            wait_until(lambda: catches_sigterm(started), log.read_text)
            wait_until(lambda: committed(tmp_path / "words.db") >= 1, log.read_text)
            started.terminate()
            assert started.wait() == 0, log.read_text()
        finally:
            started.kill()
