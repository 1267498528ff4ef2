"""The commands of the pages for spark-submit: executors have nothing but what they are shipped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.polling import wait_until
from tests.harness.processes import ROOT
from tests.harness.servers.spark_cluster import START_LIMIT_S, SparkCluster
from tests.services.cluster.environment import JARS, Archive
from tests.unit.test_pages import blocks_of, committed
from txtopo import open_state

pytestmark = [pytest.mark.kills, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_800)]
INSTALLATION = ROOT / "docs" / "how-to" / "installation.md"
CLUSTER = ROOT / "docs" / "how-to" / "run-on-a-cluster.md"
WORD_COUNT = """
import txtopo
from txtopo import (
    BasicBolt, Count, Fields, PersistentAggregate, TransactionalTopologyBuilder, open_state
)
from txtopo.spouts import MemoryTransactionalSpout


class Where(BasicBolt):
    output_fields = Fields("word string")

    def execute(self, tuple, collector):
        collector.emit([txtopo.__file__])
        collector.emit([__file__])


def topology():
    words = {part: [["cat"]] * 20 for part in range(2)}
    spout = MemoryTransactionalSpout(words, Fields("word string"), 1)
    builder = TransactionalTopologyBuilder("word-count", "words", spout, 2)
    builder.set_bolt("where", Where(), 2).shuffle_grouping("words")
    counts = PersistentAggregate(open_state("sqlite:///words.db"), "word", Count())
    builder.set_bolt("counts", counts).fields_grouping("where", "word")
    return builder.build_topology()
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Archive(tmp_path_factory.mktemp("archive") / "made").packed()


@pytest.fixture
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster() as cluster:
        yield cluster


def commands_of(page: Path, start: str) -> str:
    """Return the only block of a page that has commands which begin so."""
    blocks = [block.text for block in blocks_of(page.read_text()) if block.language == "text"]
    (found,) = (text for text in blocks if re.search(f"^{start}", text, re.MULTILINE))
    return found


def test_an_environment_is_shipped_as_the_page_says(
    archive: Path, cluster: SparkCluster, tmp_path: Path
) -> None:
    commands = commands_of(INSTALLATION, "spark-submit")
    making, _, running = commands.partition("export ")
    assert f"--exclude '{JARS}'" in making

    (tmp_path / archive.name).symlink_to(archive)
    found = places_of_a_run(f"export {running}", cluster, tmp_path)

    assert len(found) == 2 * 2, "each of two executors has its own copies"
    for place in found:
        assert Path(place).is_relative_to(cluster.folder), "nothing else was imported"
    assert any("/environment/lib/" in place for place in found)


def places_of_a_run(commands: str, cluster: SparkCluster, folder: Path) -> set[str]:
    """Run the program of the page until all is counted; return where executors import from."""
    (program,) = (b.text for b in blocks_of(CLUSTER.read_text()) if b.language == "python")
    (folder / "program.py").write_text(program)
    (folder / "word_count.py").write_text(WORD_COUNT)
    (folder / "txtopo.toml").write_text('zookeeper.hosts = "memory"\nslots = 2\n')
    log = folder / "log"
    with (
        log.open("w") as file,
        subprocess.Popen(
            ["bash", "-e", "-c", commands.replace("spark://master:7077", cluster.url)],
            cwd=folder,
            env=environment(),
            stdout=file,
            stderr=file,
            start_new_session=True,
        ) as started,
    ):
        try:
            wait_until(
                lambda: runs(started) and committed(folder / "words.db") >= 20,
                log.read_text,
                START_LIMIT_S,
            )
        finally:
            os.killpg(started.pid, signal.SIGKILL)
    with open_state(f"sqlite:///{folder / 'words.db'}", table="counts").reader() as reader:
        counts = dict(reader.items())
    assert sum(counts.values()) == 2 * 40, log.read_text()
    return set(counts)


def runs(process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None
    return True


def environment() -> dict[str, str]:
    """Return the environment of somebody who has activated this one."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {**os.environ, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
    return {name: value for name, value in own.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
