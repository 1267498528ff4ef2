"""Prometheus' own tool finds nothing wrong with the metrics, the alerts and the dashboard."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness.polling import wait_until
from tests.harness.web import TOKEN, ask
from tests.unit.ui.pages.test_server import on_page, words
from tests.unit.ui.test_metrics import ALERTS, DASHBOARD, board_of, trees_board
from txtopo.ui import metrics
from txtopo.ui.board import Board

pytestmark = pytest.mark.service("promtool")

FOLDER = ALERTS.parent


def promtool(*arguments: str, given: bytes = b"", folder: Path = FOLDER) -> tuple[int, str]:
    """Run ``promtool``; return its exit code and what it printed."""
    done = subprocess.run(
        ["promtool", *arguments], input=given, cwd=folder, capture_output=True, timeout=60
    )
    return done.returncode, (done.stdout + done.stderr).decode()


@pytest.mark.parametrize("board", [board_of({"0": 3}), trees_board()], ids=["batches", "trees"])
def test_the_names_of_metrics_are_as_prometheus_advises(board: Board) -> None:
    assert promtool("check", "metrics", given=metrics.text(board)) == (0, "")


def test_the_page_of_a_run_has_metrics_that_prometheus_can_read(tmp_path: Path) -> None:
    with words(tmp_path).start(config=on_page()) as run:
        run.process_all_available()
        assert run.page_url is not None
        wait_until(lambda: run.board.figures()["txid"] == 3, "the last commit is told")
        refused = ask(run.page_url, "/metrics")
        answer = ask(run.page_url, "/metrics", token=TOKEN)

    assert refused.status == 401
    assert answer.headers["content-type"] == metrics.CONTENT_TYPE
    assert 'txtopo_committed_txid{topology="words"} 3.0\n' in answer.text
    assert promtool("check", "metrics", given=answer.body) == (0, "")


def test_the_alerts_and_the_configuration_are_valid() -> None:
    for arguments in (("check", "rules", ALERTS.name), ("check", "config", "prometheus.yml")):
        code, told = promtool(*arguments)
        assert code == 0, told


def test_each_alert_fires_when_it_should_and_not_otherwise() -> None:
    code, told = promtool("test", "rules", "alerts_test.yml")

    assert code == 0, told


RULES = re.split(r"(?=^      - alert: )", ALERTS.read_text(), flags=re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", range(1, len(RULES)), ids=re.findall(r"alert: (\w+)", ALERTS.read_text())
)
@pytest.mark.parametrize("always", [True, False], ids=["that always fires", "that never fires"])
def test_the_tests_of_the_alerts_notice_an_alert(number: int, always: bool, tmp_path: Path) -> None:
    changed = list(RULES)
    expression = "txtopo_status or txtopo_trees_pending" if always else "txtopo_status > 99"
    changed[number] = re.sub(
        r"expr:(.|\n)*?(?=\n        (for|labels):)", f"expr: {expression}", changed[number]
    )
    (tmp_path / ALERTS.name).write_text("".join(changed))
    shutil.copy(FOLDER / "alerts_test.yml", tmp_path)

    assert promtool("check", "rules", ALERTS.name, folder=tmp_path)[0] == 0
    code, told = promtool("test", "rules", "alerts_test.yml", folder=tmp_path)
    assert code != 0
    assert "FAILED" in told


def test_the_expressions_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    expressions = [
        target["expr"].replace("$__rate_interval", "1m").replace("$topology", ".*")
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel.get("targets", ())
    ]
    rules = [{"record": f"panel:{n}", "expr": each} for n, each in enumerate(expressions)]
    # JSON is YAML, too.
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))

    code, told = promtool("check", "rules", "rules.yml", folder=tmp_path)
    assert code == 0, told
    assert f"{len(expressions)} rules found" in told
