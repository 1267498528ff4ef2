"""The notebook runs from top to bottom in a kernel: picture, run and state are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[3] / "examples" / "notebook.ipynb"


def read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]


def execute(notebook: Any, folder: Path) -> None:
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=240, kernel_name="python3", resources=where).execute()


def shown(notebook: Any, source: str) -> str:
    """Return the HTML, or the text, of the cell whose last line is this."""
    (cell,) = [c for c in notebook.cells if c.source.splitlines()[-1] == source]
    texts = [each.get("data", {}).get("text/html") or each.get("text", "") for each in cell.outputs]
    return "".join(texts)


def test_the_notebook_is_stored_without_outputs() -> None:
    for cell in read().cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_notebook_runs_and_shows_picture_run_and_state(tmp_path: Path) -> None:
    notebook = read()
    execute(notebook, tmp_path)

    assert "<svg" in shown(notebook, "topology")
    assert "─ ─ the handover" in shown(notebook, "print(topology.explain(config))")
    assert "rows per second" in shown(notebook, "run.watch(3)")
    assert "txid 60 is committed" in shown(notebook, "run.last_progress")
    state = shown(notebook, 'open_state("sqlite:///words.db", table="counts")')
    assert "<table>" in state
    assert "&lt;b&gt;nothing&lt;/b&gt;" in state
    assert "words: stopped" in shown(notebook, "run")


STOP = """from threading import Event

from txtopo import BatchCommitted, TopologyListener

started = Event()


class Stop(TopologyListener):
    def on_change(self, change):
        if isinstance(change, BatchCommitted) and change.progress.txid == 3:
            started.wait()
            run.stop()


run = topology.start(config=Config(carrier="local", zookeeper="memory"), listeners=[Stop()])
started.set()
run.watch()"""


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_watching_renews_one_output_until_the_run_ends(tmp_path: Path) -> None:
    notebook = read()
    built = next(each for each in notebook.cells if "build_topology" in each.source)
    watching = nbformat.v4.new_code_cell(STOP)  # type: ignore[no-untyped-call]
    notebook.cells = [built, watching]
    execute(notebook, tmp_path)

    (live,) = [each for each in watching.outputs if each.output_type == "display_data"]
    assert "words: stopped" in live.data["text/html"]
    assert "committed" in live.data["text/html"]
