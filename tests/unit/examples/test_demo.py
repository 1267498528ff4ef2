"""The demo's loop, with a child that only says what the flights topology would say."""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from examples import demo

pytestmark = pytest.mark.integration
# Commits one batch of 1 % each 2 ms, and continues where the file says that it was. However late
# the kill of its life comes, it has to come: it waits for it where the part of the data is over.
CHILD = """
import json, pathlib, sys, time
ledger = pathlib.Path(sys.argv[1])
lives = ledger.with_suffix(".lives")
with lives.open("a") as file:
    file.write("x")
life = lives.stat().st_size
txid = int(ledger.read_text()) if ledger.exists() else 0
print(json.dumps({"event": "leading", "epoch": 1, "txid": txid}), flush=True)
while txid < int(sys.argv[2]):
    txid += 1
    print(json.dumps({"event": "started", "attempts": 1}), flush=True)
    time.sleep(0.002)
    ledger.with_suffix(".new").write_text(str(txid))
    ledger.with_suffix(".new").replace(ledger)
    line = {"event": "committed", "txid": txid, "rows": 3368, "speed": 1.0}
    print(json.dumps(line), flush=True)
    if life <= 3 and txid >= 25 * life:
        time.sleep(3600)
sys.exit(int(sys.argv[3]))
"""


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ledger"

    def progress(state: str, name: str) -> tuple[int, int]:
        txid = int(path.read_text()) if path.exists() else 0
        return txid, txid * 3368

    monkeypatch.setattr(demo, "progress_in_store", progress)
    return path


def demo_over(ledger: Path, *, batches: int, status: int, out: io.StringIO) -> demo.Demo:
    args = argparse.Namespace(kills=3, seed=7, dir=ledger.parent, state="", name="")
    # It needs nothing but the standard library, and starts in half the time without the rest.
    python = [sys.executable, "-I", "-S"]
    command = [*python, "-c", CHILD, str(ledger), str(batches), str(status)]
    return demo.Demo(args, command, Console(file=out))


def test_the_child_is_killed_as_often_as_asked_and_then_left_to_end(ledger: Path) -> None:
    out = io.StringIO()
    shown = demo_over(ledger, batches=100, status=0, out=out)

    assert shown.run() == 0
    assert shown.kills == 3
    assert out.getvalue().count("killed (SIGKILL)") == 3
    assert shown.bar.tasks[0].completed == 336_800


def test_a_child_that_fails_by_itself_is_not_started_again(ledger: Path) -> None:
    shown = demo_over(ledger, batches=0, status=4, out=io.StringIO())

    assert shown.run() == 4
    assert shown.kills == 0
