"""txtopo run, and the verbs that look at a run and command it.

What has to do with signals, with a terminal and with exit codes has processes of its own. The other
runs and all other verbs are in the process of the test, since a start takes a second.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.servers.zookeeper import ZooKeeperProcess
from tests.unit.command.documents import document
from txtopo import Config, Pace, Page
from txtopo.command.loading import load_transactional
from txtopo.command.program import REFUSED, UNREACHABLE, WRONG_CALL, run
from txtopo.errors import StateUsageError
from txtopo.operations.ensemble import Ensemble, TopologyStatus
from txtopo.runtime.start import TopologyRun

TOKEN = "a-token-of-this-test"
WORDS = """
import time
from pathlib import Path

from txtopo import BasicBolt, BatchBolt, Committer, FailedException, Fields
from txtopo import TransactionalTopologyBuilder
from txtopo.spouts import MemoryTransactionalSpout

FOLDER = Path("{folder}")


class FailsOnce(BasicBolt):
    output_fields = Fields("word string")

    def execute(self, tuple, collector):
        if tuple["word"] == "b" and not (FOLDER / "failed").exists():
            (FOLDER / "failed").touch()
            raise FailedException("\\x1b[31m<script>alert(1)</script>")
        collector.emit([tuple["word"]])


class Gate(BatchBolt, Committer):
    def prepare(self, config, context, collector, attempt):
        self.attempt = attempt

    def execute(self, tuple):
        pass

    def finish_batch(self):
        (FOLDER / "begun").write_text(str(self.attempt.txid))
        while not (FOLDER / "go").exists():
            time.sleep(0.01)


words = MemoryTransactionalSpout({{0: [["a"], ["b"], ["c"]]}}, Fields("word string"), 1)
builder = TransactionalTopologyBuilder("{id}", "words", words)
builder.set_bolt("fails", FailsOnce()).shuffle_grouping("words")
builder.set_bolt("gate", Gate()).global_grouping("fails")
topology = builder.build_topology()
"""


class Words:
    """A topology of three txids, in a file; its commits wait for the file ``go``."""

    def __init__(self, folder: Path, hosts: str) -> None:
        self.id = f"words-{uuid.uuid4().hex}"
        self.folder, self.hosts = folder, hosts
        self.place = f"{folder}/words_{uuid.uuid4().hex}.py"
        Path(self.place).write_text(WORDS.format(folder=folder, id=self.id))

    def let_go(self) -> None:
        """Let commits end."""
        (self.folder / "go").touch()

    def status(self) -> TopologyStatus:
        """Return what the ensemble says."""
        with Ensemble.open(Config(zookeeper=self.hosts)) as ensemble:
            return ensemble.topology(self.id)

    def wait_for(self, txid: int) -> None:
        """Wait until a run has said that a txid is committed."""

        def there() -> bool:
            try:
                summary = self.status().summary
            except StateUsageError:  # the run has not written anything yet
                return False
            return summary is not None and (summary["txid"] or 0) >= txid  # type: ignore[operator]

        wait_until(there, f"txid {txid}", pause_s=0.1)

    @contextmanager
    def running(self, *more: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
        """Run the topology in a process of its own, which is killed at the end of the block."""
        arguments = [self.place, "--set", "carrier=local", "--zookeeper", self.hosts, *more]
        with subprocess.Popen(
            [sys.executable, "-m", "txtopo", "run", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, **variables},
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def started(self, **settings: Any) -> Iterator[TopologyRun]:
        """Run the topology in this process until the end of the block."""
        config = Config(carrier="local", zookeeper=self.hosts, **settings)
        with load_transactional(self.place).start(config=config) as started:
            yield started

    def run_to_end(self) -> int:
        """Call ``txtopo run`` in this process until all is processed; return its exit code."""
        self.let_go()
        arguments = [self.place, "--set", "carrier=local", "--zookeeper", self.hosts]
        return run(["run", *arguments, "--available-now"])

    def begun(self) -> bool:
        """Return whether the first commit is under way."""
        return (self.folder / "begun").exists()


@pytest.fixture
def words(tmp_path: Path, zookeeper: ZooKeeperProcess) -> Iterator[Words]:
    words, path = Words(tmp_path, zookeeper.hosts), [*sys.path]
    yield words
    sys.path[:] = path
    sys.modules.pop(Path(words.place).stem, None)


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], zookeeper: ZooKeeperProcess) -> Call:
    """Calls the command line, and returns its exit code, its output and its errors."""

    def called(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["--zookeeper", zookeeper.hosts, *arguments])
        return (code, *capsys.readouterr())

    return called


def test_the_end_of_all_that_is_available_ends_a_run(words: Words) -> None:
    words.let_go()

    with words.running("--available-now", "--json") as process:
        out, errors = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 0, errors
    assert document("run", out)["txid"] == 3
    assert "FailedException: \\x1b[31m<script>" in errors
    assert "\x1b" not in errors


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 0), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
)
def test_a_signal_finishes_the_commit_in_hand(
    words: Words, number: signal.Signals, code: int
) -> None:
    with words.running() as process:
        wait_until(words.begun, "a commit")
        process.send_signal(number)
        assert process.stderr is not None
        for line in process.stderr:
            if "finishing the current commit" in line:
                break
        words.let_go()
        process.communicate(timeout=LIMIT_S)

    assert process.returncode == code
    assert words.status().current == int((words.folder / "begun").read_text()) + 1


def test_a_second_interrupt_drops_the_commit_in_hand(words: Words) -> None:
    with words.running() as process:
        wait_until(words.begun, "a commit")
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        for line in process.stderr:
            if "finishing the current commit" in line:
                break
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 130
    assert "is aborted" in errors
    assert words.status().current == 1


SLOW = """
import time

from txtopo import BasicBolt, Fields, TopologyBuilder
from txtopo.spouts import MemorySpout


class Slow(BasicBolt):
    def execute(self, tuple, collector):
        print("executing", flush=True)
        while True:
            time.sleep(0.01)

    def cleanup(self):
        print("cleaned up", flush=True)


words = MemorySpout([["a"]], Fields("word string"))
builder = TopologyBuilder("slow")
builder.set_spout("words", words)
builder.set_bolt("slow", Slow()).shuffle_grouping("words")
topology = builder.build_topology()
"""
QUICK = SLOW.replace("while True:", "for _ in range(50):")


@pytest.mark.parametrize("program", [QUICK, SLOW], ids=["that ends", "that does not end"])
def test_a_signal_closes_the_bolts_of_an_at_least_once_topology(
    program: str, tmp_path: Path
) -> None:
    """It has no commit; a bolt that never returns needs a second signal."""
    (tmp_path / "slow.py").write_text(program)
    command = [sys.executable, "-m", "txtopo", "run", "slow.py", "--set", "carrier=local"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "executing\n"
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            for line in process.stderr:
                assert "commit" not in line
                if "SIGTERM: closing spouts and bolts" in line:
                    break
            if program is SLOW:
                process.send_signal(signal.SIGTERM)
            out, errors = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()

    if program is SLOW:
        assert process.returncode == 130
        assert "ended at once; tuples that were not acked are emitted again" in errors
    else:
        assert process.returncode == 0, errors
        assert "cleaned up" in out


def test_a_killed_topology_ends_with_3_until_it_is_activated(
    words: Words, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    words.let_go()
    with words.running() as process:
        words.wait_for(3)
        code, out, _ = call("kill", words.id, "--wait", "5s")
        assert code == 0
        assert f"{words.id} is killed now; {process_of(process)} answered" in out
        _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == REFUSED
    assert "to revive it, txtopo activate" in errors

    capsys.readouterr()
    assert words.run_to_end() == REFUSED
    errors = capsys.readouterr().err
    assert errors.count("was killed by") == 1
    assert errors.splitlines()[-1].startswith(f"txtopo: topology {words.id!r} was killed by")

    code, out, _ = call("activate", words.id, "--json")
    assert document("command", out)["status"] == "running"
    assert words.run_to_end() == 0


def test_a_deactivated_topology_stays(words: Words, call: Call) -> None:
    words.let_go()
    with words.started() as started:
        words.wait_for(3)
        assert call("deactivate", words.id)[0] == 0
        wait_until(lambda: words.status().status == "deactivated", "the status", pause_s=0.1)
        assert started.status == "deactivated"
        assert call("activate", words.id)[0] == 0
        wait_until(lambda: words.status().status == "running", "the status", pause_s=0.1)


def process_of(process: subprocess.Popen[str]) -> str:
    """Return host and process as a command prints them."""
    return f"{os.uname().nodename}:{process.pid}"


def test_the_ensemble_and_the_page_tell_of_a_run(
    words: Words, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    words.let_go()
    with words.started(page=Page(port=0, token=TOKEN)):
        words.wait_for(3)
        _, out, _ = call("list", "--json")
        (row,) = [t for t in document("list", out)["topologies"] if t["topology"] == words.id]
        assert row["summary"]["process"]["pid"] == os.getpid()

        monkeypatch.setenv("TXTOPO_PAGE_TOKEN", TOKEN)
        shown = document("show", call("show", words.id, "--json")[1])
        assert shown["missing"] is None
        assert shown["figures"]["txid"] == 3
        assert shown["failures"][-1]["component"] == "fails"
        text = call("show", words.id)[1]
        assert "FailedException: \\x1b[31m<script>" in text

        lag = document("lag", call("lag", words.id, "--json")[1])
        assert lag["partitions"] == [{"partition": "0", "lag_records": 0, "lost": None}]
        assert "lag: 0 records" in call("lag", words.id)[1]

        (error,) = document("errors", call("errors", words.id, "--json")[1])["errors"]
        assert (error["component"], error["count"]) == ("fails", 1)
        assert document("errors", call("errors", words.id, "--since", "0", "--json")[1]) == {
            "topology": words.id,
            "errors": [],
        }
        printed = "".join("".join(call(verb, words.id)[1:]) for verb in ("show", "errors"))
        assert all(character.isprintable() or character == "\n" for character in printed)


def test_what_limits_batches_is_shown(
    words: Words, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXTOPO_PAGE_TOKEN", TOKEN)
    paced = Pace(max_rows_per_second=5)
    page = Page(token=TOKEN)
    with words.started(page=page, pace=paced, max_spout_pending=1):
        wait_until(words.begun, "a commit")  # it continues until it may end

        def shown() -> str:
            out = call("show", words.id)[1]
            return out if "full for" in out else ""

        out = wait_until(shown, "the window is shown", pause_s=0.2)
        words.let_go()
    assert re.search(
        "limited by +max_rows_per_second 5; rows of the last batch: [1-5] at most", out
    )
    assert re.search(r"window +max_spout_pending 1, full for [1-9]", out)


def test_a_wrong_token_is_refused(words: Words, call: Call) -> None:
    """Or none."""
    words.let_go()
    with words.started(page=Page(port=0, token=TOKEN)):
        words.wait_for(3)
        given: tuple[str, ...]
        for verb, given in product(
            ("show", "lag", "errors", "watch"), ((), ("--token", "another-token-of-a-test"))
        ):
            code, _, errors = call(verb, words.id, *given)
            assert code == REFUSED
            assert "needs its token" in errors
            assert TOKEN not in errors


def test_without_a_page_the_summary_is_shown_and_that_is_said(words: Words, call: Call) -> None:
    words.let_go()
    with words.started():
        words.wait_for(3)
        code, out, errors = call("lag", words.id)
        assert (code, out) == (0, "lag: 0 records\n")
        assert "only what the ensemble stores is shown" in errors
        assert "start it with --set page.port=0" in errors
        assert "FailedException" in call("errors", words.id)[1]
        assert "committed     3" in call("show", words.id)[1]


def test_a_stopped_topology_is_listed_and_shown(words: Words, call: Call) -> None:
    assert words.run_to_end() == 0

    line = next(each for each in call("list")[1].splitlines() if each.startswith(words.id))
    assert line.split()[1:5] == ["stopped", "-", "0", "3"]
    code, out, errors = call("show", words.id)
    assert code == 0
    assert "status        stopped" in out
    assert "desired       running" in out
    assert "is not running, so it has no page" in errors
    assert f"{3:020}" not in out

    assert call("deactivate", words.id)[0] == 0
    out = call("show", words.id, "--full")[1]
    assert re.search(r"desired +deactivated, as .+ \(process \d+\) asked", out)
    for path in ("/epoch", "/current", "/desired", f"/batches/{3:020}", f"/commands/{1:020}"):
        assert f"\n{path}\n{{\n  " in out
    shown = document("show", call("show", words.id, "--full", "--json")[1])
    assert shown["stored"]["/current"] == {"current": 4}
    assert shown["topology"]["txid"] == 3


def test_an_unknown_topology_names_the_similar_one(words: Words, call: Call) -> None:
    assert words.run_to_end() == 0

    for verb in ("show", "kill", "activate", "deactivate", "lag", "errors", "watch"):
        code, _, errors = call(verb, words.id[:-1])
        assert code == WRONG_CALL
        assert f"did you mean {words.id!r}?" in errors


def test_a_hostile_id_is_an_unknown_topology(call: Call) -> None:
    for id in ("../secret", "\x1b[31m", "a/b", ""):
        code, _, errors = call("show", id)
        assert code == WRONG_CALL
        assert "\x1b" not in errors


def test_an_ensemble_that_is_away_cannot_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    away = ["--zookeeper", "127.0.0.1:1", "--set", "zookeeper.connect_timeout_s=0.5"]

    for verb in (["list"], ["show", "a"], ["kill", "a"], ["lag", "a"], ["watch"], ["ui"]):
        assert run([*away, *verb]) == UNREACHABLE
    assert "nothing listens there" in capsys.readouterr().err


def test_a_watch_goes_on_until_it_is_interrupted(words: Words) -> None:
    words.let_go()
    with words.started(), watching(words, "--json", stdout=subprocess.PIPE) as watch:
        assert watch.stdout is not None
        for _ in range(2):
            document("watch", watch.stdout.readline())
        watch.send_signal(signal.SIGINT)
        watch.communicate(timeout=LIMIT_S)
    assert watch.returncode == 130


def test_a_watch_on_a_terminal_ends_with_q(words: Words) -> None:
    words.let_go()
    ours, theirs = pty.openpty()
    with words.started(), watching(words, stdin=theirs, stdout=theirs, stderr=theirs) as watch:
        os.close(theirs)
        shown = ""
        while "q ends it" not in shown:
            shown += os.read(ours, 10_000).decode()
        os.write(ours, b"q")
        with suppress(OSError):  # its end closes the terminal
            while part := os.read(ours, 10_000):
                shown += part.decode()
        watch.wait(timeout=LIMIT_S)
    os.close(ours)
    assert watch.returncode == 0
    assert "?1049l" in shown  # the screen is given back


@contextmanager
def watching(words: Words, *more: str, **streams: Any) -> Iterator[subprocess.Popen[str]]:
    """Watch a topology that runs."""
    words.wait_for(3)
    arguments = ["--zookeeper", words.hosts, "watch", words.id, "--every", "100ms", *more]
    with subprocess.Popen(
        [sys.executable, "-m", "txtopo", *arguments], text=True, **streams
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_ids_are_completed_from_the_ensemble(words: Words) -> None:
    assert words.run_to_end() == 0

    assert completed(f"txtopo --zookeeper {words.hosts} show {words.id[:-3]}") == [words.id]
    assert completed("txtopo --zookeeper 127.0.0.1:1 show ") == []


def completed(line: str) -> list[str]:
    """Return what bash is told to complete a line to."""
    done = subprocess.run(
        [sys.executable, "-m", "txtopo"],
        env={
            **os.environ,
            "_TXTOPO_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        },
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    assert done.stderr == ""
    return [each.partition(",")[2] for each in done.stdout.split()]


def test_the_page_of_an_ensemble_is_served_until_a_signal(words: Words) -> None:
    arguments = ["--zookeeper", words.hosts, "ui", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "txtopo", *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        page = document("ui", process.stdout.readline())["page"]
        assert json.loads(read(f"{page}/api/v1/topologies"))["topologies"] is not None
        process.terminate()
        assert process.wait(LIMIT_S) == 0


def read(url: str) -> str:
    """Return what a page answers."""
    from urllib.request import urlopen

    with urlopen(url, timeout=LIMIT_S) as answer:
        return str(answer.read().decode())
