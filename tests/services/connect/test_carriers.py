"""Topologies on a session of Spark Connect, whose server is a process of its own."""

from __future__ import annotations

import sys
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from tests.harness.processes import ROOT
from tests.harness.servers.spark_connect import CORES, ConnectClient, SparkConnectServer
from tests.services.connect import programs
from tests.services.connect.programs import COUNTS, WORDS, read
from txtopo.config import Carrier
from txtopo.errors import TopologyError

pytestmark = [pytest.mark.spark, pytest.mark.service("spark-connect")]

MODULE = """
from txtopo import BasicBolt, Fields

class Upper(BasicBolt):
    output_fields = Fields("word string")

    def execute(self, tuple, collector):
        collector.emit([tuple["word"].upper()])
"""


@pytest.fixture
def url(connect_server: SparkConnectServer) -> str:
    return connect_server.url


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'states.db'}"


@pytest.mark.parametrize(
    ("carrier", "tasks"), [pytest.param("dataframe", 1, marks=pytest.mark.slow), ("auto", 2)]
)
def test_words_are_counted_and_spark_reads_the_state(
    client: ConnectClient, url: str, store: str, carrier: Carrier, tasks: int
) -> None:
    rows = client.call(programs.count_words, url, store, carrier, tasks)

    assert read(store) == COUNTS
    assert list(read(store, "total").values()) == [len(WORDS)]
    assert rows == f"[Row(word='the', count={COUNTS['the']})]"


@pytest.mark.slow
def test_a_topology_has_as_many_slots_as_the_server_has_cores(
    client: ConnectClient, url: str
) -> None:
    """And not as a shuffle has partitions, which made three small batches take minutes."""
    assert client.call(programs.slots, url, 200) == CORES


def test_data_frames_are_added_up_in_delta(client: ConnectClient, url: str, tmp_path: Path) -> None:
    totals = client.call(programs.add_up_days, url, f"delta://{tmp_path / 'states'}")

    expected: Counter[int] = Counter()
    for number in range(100, 400):
        expected[number % 3] += number
    assert totals == sorted(expected.items())


@pytest.mark.slow
def test_a_delta_table_is_read_by_the_server(
    client: ConnectClient, url: str, store: str, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = str(tmp_path / "words")
    deltalake.write_deltalake(table, pa.table({"word": WORDS}))

    client.call(programs.count_frame_words, url, store, table)

    assert read(store) == COUNTS


@pytest.mark.slow
def test_a_stream_reader_of_python_is_read(
    client: ConnectClient, url: str, store: str, tmp_path: Path
) -> None:
    folder = tmp_path / "lines"
    folder.mkdir()
    (folder / "p0").write_text("1\n2\n1\n")
    (folder / "p1").write_text("2\n1\n")

    client.call(programs.count_lines, url, store, str(folder))

    assert read(store) == {1: 3, 2: 2}


@pytest.mark.slow
def test_a_program_of_streams_runs(client: ConnectClient, url: str, store: str) -> None:
    client.call(programs.run_streams, url, store)

    assert read(store) == {"cat": 2, "the": 1}


def test_a_worker_that_dies_is_counted_and_its_batches_are_run_again(
    client: ConnectClient, url: str, store: str, tmp_path: Path
) -> None:
    [(kind, said)] = client.call(programs.crash_once, url, store, str(tmp_path / "crashed"))

    assert kind == "counted"
    assert "a Python worker of the job" in said
    assert read(store) == COUNTS


@pytest.mark.slow
def test_a_module_that_the_server_lacks_is_named(
    client: ConnectClient, url: str, store: str, tmp_path: Path
) -> None:
    module = tmp_path / "bolts_that_stay.py"
    module.write_text(MODULE)

    with pytest.raises(TopologyError, match=r"module 'bolts_that_stay'.*with addArtifacts"):
        client.call(programs.count_shipped, url, store, [], module=str(module))


@pytest.mark.slow
def test_a_module_is_shipped_to_the_server(
    client: ConnectClient, url: str, store: str, tmp_path: Path
) -> None:
    module = tmp_path / "bolts_that_travel.py"
    module.write_text(MODULE)

    client.call(programs.count_shipped, url, store, [str(module)], module=str(module))

    assert read(store) == {word.upper(): count for word, count in COUNTS.items()}


@pytest.mark.slow
def test_a_server_without_txtopo_is_refused_and_can_be_sent_it(
    client: ConnectClient, url: str, store: str, tmp_path: Path
) -> None:
    """Its Python has PySpark and what PySpark needs, and nothing of ours."""
    conf = {"spark.sql.execution.pyspark.python": str(python_without_txtopo(tmp_path))}
    with pytest.raises(TopologyError, match=r"cannot import 'txtopo'.*with addArtifacts"):
        client.call(programs.count_shipped, url, store, [], conf)
    sent = tmp_path / "txtopo.zip"
    with zipfile.ZipFile(sent, "w") as archive:
        for package in ("txtopo", "state_backends"):
            for path in (ROOT / package).rglob("*.py"):
                archive.write(path, path.relative_to(ROOT))

    client.call(programs.count_shipped, url, f"sqlite:///{tmp_path / 'sent.db'}", [str(sent)], conf)

    assert read(f"sqlite:///{tmp_path / 'sent.db'}") == COUNTS


def python_without_txtopo(folder: Path) -> Path:
    """Return a program that is this Python, but finds no package in the path of this project."""
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    program = folder / "python"
    # -S reads no .pth file, by which this project is in the path.
    program.write_text(
        "#!/bin/sh\n"
        f'path=$(echo "$PYTHONPATH" | tr : "\\n" | grep -vx {ROOT} | tr "\\n" :)\n'
        f'PYTHONPATH={packages}:$path exec {sys.executable} -S "$@"\n'
    )
    program.chmod(0o755)
    return program
