"""Delta tables that cannot hold the state that a topology asks for are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.bad_inputs.evidence import KEPT, held
from tests.faults.bad_inputs.numbers import bad_input
from tests.faults.bad_inputs.topologies import keeping
from tests.harness.runs import Storage, run_to_end
from txtopo.errors import SchemaDrift
from txtopo.state import open_state

pytestmark = pytest.mark.integration

ROWS = [["a", 1], ["b", 2]]
WITHOUT = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
from txtopo.errors import ConfigError
from txtopo.state import open_state
from txtopo.testing.conformance.driver import StateDriver
try:
    store = StateDriver(open_state("delta://{folder}", table="kept"))
except ConfigError as error:
    print("ConfigError", error)
else:
    store.puts(1, {{"a": 1}})
    print(store.contents())
"""


def output_without(folder: Path, *missing: str) -> str:
    """Use a state in a Python that lacks some modules, and return what it says."""
    code = WITHOUT.format(missing=missing, folder=folder)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@bad_input(61, 62, 63)
def test_no_jar_no_session_and_no_version_of_spark_are_needed(tmp_path: Path) -> None:
    """States are written by delta-rs, so there is nothing of Spark that could be missing."""
    assert output_without(tmp_path, "pyspark", "delta", "py4j") == "{'a': 1}"


@bad_input(61)
def test_a_delta_library_that_is_missing_is_named(tmp_path: Path) -> None:
    said = output_without(tmp_path, "deltalake")

    assert said == (
        "ConfigError a state in Delta has nothing to write it; got neither the package deltalake "
        "nor a Spark session; expected one of them; install it with: pip install "
        "'txtopo[delta]', or start the topology on Spark"
    )
    assert list(tmp_path.iterdir()) == []


@bad_input(64)
@pytest.mark.parametrize("what", ["files", "a file"])
def test_a_place_that_is_taken_is_not_mixed_with_a_table(tmp_path: Path, what: str) -> None:
    storage = Storage(f"delta://{tmp_path}")
    stranger = tmp_path / KEPT if what == "a file" else tmp_path / KEPT / "part-0.parquet"
    stranger.parent.mkdir(exist_ok=True)
    stranger.write_bytes(b"of somebody else")

    with pytest.raises(
        SchemaDrift, match=f"is in use and is not a Delta table; got {stranger.name}"
    ):
        run_to_end(keeping(storage, ROWS), storage)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [stranger]


@bad_input(64)
def test_a_file_beside_the_tables_does_not_hide_them(tmp_path: Path) -> None:
    storage = Storage(f"delta://{tmp_path}")
    run_to_end(keeping(storage, ROWS), storage)
    (tmp_path / "README").write_text("what the folder is for")

    with open_state(storage.url).reader() as reader:
        assert dict(reader.items()) == {"a": 1, "b": 2}


@bad_input(64)
def test_a_creation_that_was_broken_off_is_no_stranger(tmp_path: Path) -> None:
    storage = Storage(f"delta://{tmp_path}")
    (tmp_path / KEPT / "_delta_log").mkdir(parents=True)

    run_to_end(keeping(storage, ROWS), storage)

    assert held(storage).rows == {"a": 1, "b": 2}
