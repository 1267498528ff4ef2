"""Verbs that need no server: config, run, explain, doctor, completion; and what all verbs share."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import pytest

from tests.unit.command.documents import SCHEMAS, document
from txtopo.command.choices import Duration
from txtopo.command.figures import count_failures
from txtopo.command.group import commands
from txtopo.command.program import FAILED, WRONG_CALL, run
from txtopo.config import known_settings
from txtopo.errors import ConfigError
from txtopo.extras import Extra

COUNTING = """
from txtopo import BasicBolt, Count, Fields, PersistentAggregate, TransactionalTopologyBuilder
from txtopo import open_state
from txtopo.spouts import MemoryTransactionalSpout

words = MemoryTransactionalSpout({0: [["a"], ["b"]]}, Fields("word string"), 1)
builder = TransactionalTopologyBuilder("counting", "words", words)
counts = PersistentAggregate(open_state("memory:"), "word", Count())
builder.set_bolt("counts", counts).fields_grouping("words", "word")
topology = builder.build_topology()


class Fails(BasicBolt):
    def execute(self, tuple, collector):
        raise ValueError("\\x1b[31mnot a word")


def in_need():
    from txtopo.plugins.spouts import Server

    words = MemoryTransactionalSpout({0: [["a"]]}, Fields("word string"), 1)
    words.connects_to = [Server.of("Kafka", "127.0.0.1:1", 9092)]
    builder = TransactionalTopologyBuilder("needy", "words", words)
    counts = PersistentAggregate(open_state("redis://:s3cret-word@127.0.0.1:1"), "word", Count())
    builder.set_bolt("counts", counts).fields_grouping("words", "word")
    return builder.build_topology()


def failing():
    failing = TransactionalTopologyBuilder("failing", "words", words)
    failing.set_bolt("fails", Fails()).shuffle_grouping("words")
    return failing.build_topology()
"""
LOCAL = ("--set", "carrier=local", "--set", "zookeeper.hosts=memory", "--available-now")
PASSWORD = "user:s3cret-word"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "counting_here.py").write_text(COUNTING)
    yield tmp_path
    # Only those of the folder: a library that is imported twice is two libraries.
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


def txtopo(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "txtopo", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_settings_that_hold_are_shown_with_their_sources(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "txtopo.toml").write_text(f'max_spout_pending = 1\nzookeeper.auth = "{PASSWORD}"\n')
    monkeypatch.setenv("TXTOPO_SLOTS", "4")

    assert run(["config", "--json", "--set", "allow_change=yes", "--dir", "elsewhere"]) == 0

    out = capsys.readouterr().out
    found = document("config", out)
    assert found["file"] == "txtopo.toml"
    shown = {each["setting"]: (each["value"], each["source"]) for each in found["settings"]}
    assert set(shown) == set(known_settings())
    assert shown["max_spout_pending"] == (1, "txtopo.toml, line 1")
    assert shown["zookeeper.auth"] == ("***", "txtopo.toml, line 2")
    assert shown["slots"] == (4, "TXTOPO_SLOTS")
    assert shown["allow_change"] == (True, "--set allow_change")
    assert shown["zookeeper.dir"] == ("elsewhere", "--dir")
    assert shown["zookeeper.tls"] == (None, "default")
    assert PASSWORD not in out
    assert all(each["meaning"] for each in found["settings"])

    assert run(["config"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "file: txtopo.toml"
    assert [line.split()[0] for line in lines[2:]] == [
        each["setting"] for each in found["settings"]
    ]


def test_options_of_all_verbs_may_stand_before_and_after_the_verb(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = []
    for arguments in (
        ["--json", "--set", "slots=3", "config"],
        ["config", "--json", "--set", "slots=3"],
        ["--set", "slots=3", "config", "--json"],
    ):
        assert run(arguments) == 0
        printed.append(capsys.readouterr().out)
    assert len(set(printed)) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["config", "--set", "slots"], "expected SETTING=VALUE"),
        (["config", "--set", "slot=1"], "did you mean 'slots'?"),
        (["config", "--set", "slots=one"], "it comes from --set slots"),
        (["config", "--config", "nothing.toml"], "No such file"),
        (["--zookeeper", "a:1", "--dir", "b", "list"], "expected only one"),
        (["list", "--dir", "nothing"], "holds no embedded zookeeper"),
        (["list"], "name its folder with --dir, or another ensemble with --zookeeper"),
        (["kill", "a", "--wait", "-1"], "expected a duration"),
        (["kill", "a", "--wait", "soon"], "expected a duration"),
        (["errors", "a", "--since", "1 fortnight"], "expected a duration"),
        (["watch", "--every", "0"], "expected more than 0"),
        (["kill"], "Missing argument 'TOPOLOGY'"),
        (["run", "counting_her:topology"], "there is no module"),
        (["run", "counting_here:topolgy"], "did you mean 'topology'?"),
        (["run", "counting_here:counts"], "is not a topology"),
        (["run", "counting_here", "--master", "local[1]", *LOCAL], "does not use Spark"),
        (
            ["run", "counting_here", "--set", "ackers=0", *LOCAL],
            "unknown setting 'ackers' in --set ackers; it is a setting of AtLeastOnceConfig",
        ),
        (["explain", "counting_here", "--svg", "--mermaid"], "expected one"),
        (["explain", "counting_here", "--svg", "--json"], "expected one"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
        (["ui", "--port", "70000", "--dir", "."], "65535"),
    ],
)
def test_a_wrong_call_is_said_in_a_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == WRONG_CALL

    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


@pytest.mark.integration
def test_a_run_ends_when_all_is_processed() -> None:
    done = txtopo("run", "counting_here:topology", *LOCAL, "--json")

    assert done.returncode == 0, done.stderr
    assert document("run", done.stdout)["rows_total"] == 2
    assert "leading, epoch 1" in done.stderr


@pytest.mark.integration
def test_a_local_run_goes_on_and_is_found_by_its_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = COUNTING.replace("memory:", f"sqlite:///{folder}/counts.db")
    (folder / "counting_on.py").write_text(text)
    for end in ("stopped  2 rows", "leading, epoch 2\nstopped\n"):
        assert run(["run", "counting_on", "--set", "carrier=local", "--available-now"]) == 0
        assert end in capsys.readouterr().err

    assert run(["list", "--zookeeper", "file:txtopo-progress.db"]) == 0
    assert "counting" in capsys.readouterr().out
    assert run(["list"]) == WRONG_CALL
    assert "or file:txtopo-progress.db, which is here, with --zookeeper" in capsys.readouterr().err


@pytest.mark.integration
def test_a_run_without_rich_prints_lines(folder: Path) -> None:
    (folder / "rich").mkdir()
    (folder / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'rich' else find(name, *more)\n"
    )

    done = txtopo("run", "counting_here:topology", *LOCAL, PYTHONPATH=str(folder))

    assert done.returncode == 0, done.stderr
    assert "leading, epoch 1\n1 rows" in done.stderr
    assert done.stderr.endswith("stopped\n")


@pytest.mark.integration
def test_an_error_of_a_bolt_is_one_line_and_its_traceback_is_there_if_asked_for() -> None:
    done = txtopo("run", "counting_here.py:failing", *LOCAL)
    assert done.returncode == FAILED
    assert "\x1b" not in done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("txtopo: ValueError: \\x1b[31mnot a word")
    assert "--traceback shows where" in last

    done = txtopo("run", "counting_here.py:failing", *LOCAL, "--traceback")
    assert done.returncode == FAILED
    assert "in execute" in done.stderr


@pytest.mark.integration
def test_a_start_that_fails_gives_the_terminal_back() -> None:
    ours, theirs = pty.openpty()
    (Path.cwd() / "counting_here.py").write_text(COUNTING)
    place = ["run", "counting_here", "--set", "carrier=local", "--set", "zookeeper.hosts=embedded"]
    with subprocess.Popen([sys.executable, "-m", "txtopo", *place], stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # its end closes the terminal
            while part := os.read(ours, 10_000):
                shown += part
        assert process.wait() == WRONG_CALL
    os.close(ours)
    assert b"needs the JVM" in shown
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l") > -1


@pytest.mark.integration
def test_nothing_runs_without_assertions() -> None:
    assert txtopo("config", PYTHONOPTIMIZE="1").returncode == WRONG_CALL
    assert "run it without" in txtopo("config", PYTHONOPTIMIZE="1").stderr


@pytest.mark.integration
def test_the_command_needs_no_extra(folder: Path) -> None:
    (folder / "without.py").write_text(
        "import sys\nfrom txtopo.extras import EXTRAS\n"
        "sys.modules.update(dict.fromkeys(EXTRAS))\n"
        "from txtopo.command.program import main\nmain()\n"
    )

    def without(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "without.py", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert without("--help").returncode == 0
    assert without("config").returncode == 0
    done = without("ui")
    assert done.returncode == WRONG_CALL
    assert "pip install 'txtopo[ui]'" in done.stderr


def test_a_topology_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "counting_here", "--json"]) == 0
    found = document("explain", capsys.readouterr().out)
    assert [each["component"] for each in found["components"]] == ["words", "counts"]

    for option, begins in (("--mermaid", "flowchart"), ("--svg", "<svg")):
        assert run(["explain", "counting_here", option]) == 0
        assert capsys.readouterr().out.startswith(begins)
    assert run(["explain", "counting_here:topology", "--all"]) == 0
    assert "the handover" in capsys.readouterr().out


def test_an_explanation_begins_with_five_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "counting_here:topology"]) == 0
    heading, *lines = capsys.readouterr().out.split("\n\n")[0].split("\n")

    assert heading.startswith("topology ")
    assert [line.split()[0] for line in lines] == [
        "source",
        "work",
        "computed",
        "stored",
        "failure",
    ]


def test_the_doctor_finds_nothing_wrong_before_the_first_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(["doctor", "--json"])
    before = {each["name"]: each for each in json.loads(capsys.readouterr().out)["checks"]}
    run(["doctor", "--json", "--dir", "elsewhere"])
    named = {each["name"]: each for each in json.loads(capsys.readouterr().out)["checks"]}

    assert before["ensemble"]["status"] == "none"
    assert before["ensemble"]["found"].endswith("will be created by the first run")
    assert named["ensemble"]["status"] == "failed"


@pytest.mark.parametrize("verb", ["run", "explain", "verify", "rewind", "forget"])
def test_a_verb_that_needs_a_topology_takes_the_modules_of_a_yaml_file(verb: str) -> None:
    options = [option for each in commands.commands[verb].params for option in each.opts]

    assert "--module" in options


def test_a_yaml_file_is_explained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "counting.yaml").write_text(
        "topology: fails\n"
        "spouts: [{id: words, class: txtopo.spouts.MemoryTransactionalSpout, arguments: "
        "{partitions: {0: [[a]]}, fields: {fields: word string}, batch_rows_max: 1}}]\n"
        "bolts: [{id: fails, class: counting_here.Fails}]\n"
        "streams: [{from: words, to: fails, grouping: shuffle}]\n"
    )

    assert run(["explain", "counting.yaml", "--module", "counting_here"]) == 0
    assert "topology 'fails'" in capsys.readouterr().out
    assert run(["explain", "counting.yaml"]) == WRONG_CALL


def test_a_topology_in_yaml_runs_with_classes_of_a_module(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "words.yaml").write_text(
        """
topology: failing
spouts:
  - id: words
    class: txtopo.spouts.MemoryTransactionalSpout
    arguments: [{0: [[a]]}, {fields: word string}, 1]
bolts:
  - {id: fails, class: counting_here.Fails}
streams:
  - {from: words, to: fails, grouping: shuffle}
"""
    )
    mine = ("words.yaml", "--module", "counting_here")

    assert run(["explain", *mine]) == 0
    assert "fails" in capsys.readouterr().out
    assert run(["explain", "words.yaml"]) == WRONG_CALL
    assert "words.yaml, line 8" in capsys.readouterr().err
    assert run(["run", *mine, *LOCAL, "--set", "attempts_max=1"]) == FAILED
    assert "not a word" in capsys.readouterr().err


YAML = """
topology: bad
spouts:
  - id: words
    class: txtopo.spouts.MemoryTransactionalSpout
    arguments: [{0: [[a]], 1: [[b]]}, {fields: word string}, 5]
bolts:
  - {id: fails, class: counting_here.Fails}
streams:
  - {from: words, to: fails, grouping: shuffle}
"""


@pytest.mark.parametrize(
    ("old", "new", "settings", "said"),
    [
        (
            "Fails}",
            "Fials}",
            (),
            "bad.yaml, line 8, column 24: module 'counting_here' has no class",
        ),
        (
            "{fields: word string}",
            "!!python/name:os.system",
            (),
            "bad.yaml, line 6, column 39: tags",
        ),
        ("words\n", "${NO_SUCH}\n", (), "bad.yaml, line 4, column 9: environment variable NO_SUCH"),
        ("[[a]]", "&a [*a]", (), "bad.yaml, line 6, column 21: an anchor contains itself"),
        ("[[a]]", "&a {b: {c: *a}}", (), "bad.yaml, line 6, column 21: an anchor contains itself"),
        (
            "",
            "",
            ("pace.max_rows_per_second=0",),
            "a finite number above 0; got 0.0; it comes from --set",
        ),
        (
            "",
            "",
            ("pace.max_rows_per_second=-1",),
            "got -1.0; it comes from --set pace.max_rows_per_second",
        ),
        (
            "",
            "",
            ("pace.max_rows_per_second=inf",),
            "got inf; it comes from --set pace.max_rows_per_second",
        ),
        (
            *("", "", ("pace.min_batch_rows=5", "pace.max_batch_delay_s=0.01")),
            "got 0.01; expected at least 0.05, since a spout is not asked more often; raise it",
        ),
        (
            *("", "", ("pace.min_batch_rows=11", "pace.max_batch_delay_s=1")),
            "got 11; expected at most 10, which is batch_rows_max=5 times 2 partitions",
        ),
    ],
)
def test_a_bad_yaml_file_or_pace_is_refused_in_a_line_that_says_where(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    settings: tuple[str, ...],
    said: str,
) -> None:
    (folder / "bad.yaml").write_text(YAML.replace(old, new, 1))
    given = [part for each in settings for part in ("--set", each)]

    assert run(["run", "bad.yaml", "--module", "counting_here", *LOCAL, *given]) == WRONG_CALL

    (line,) = [each for each in capsys.readouterr().err.splitlines() if "txtopo: " in each]
    assert said in line


def test_the_doctor_says_which_extra_is_missing_where_its_package_cannot_be_imported(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "half").mkdir()
    (folder / "half" / "__init__.py").write_text("import a_package_that_nobody_has")
    extras = {"half.there": Extra("avro", "half"), "absent.there": Extra("protobuf", "absent")}
    monkeypatch.setattr("txtopo.command.doctor.EXTRAS", extras)

    run(["doctor", "--json", "--set", "zookeeper.hosts=memory"])

    checks = {each["name"]: each for each in document("doctor", capsys.readouterr().out)["checks"]}
    assert checks["extra avro"]["status"] == checks["extra protobuf"]["status"] == "none"
    assert "pip install 'txtopo[avro]'" in checks["extra avro"]["found"]


def test_a_run_with_a_master_tells_of_a_silent_server_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    masters = []

    def refuse(*, master: str, **_: object) -> Any:
        masters.append(master)
        assert "Kafka (spout 'words') does not answer: 127.0.0.1:1 refuses" in caplog.text
        raise ConfigError("there is no Spark")

    for module in "txtopo.command.running", "txtopo.runtime.start":
        monkeypatch.setattr(f"{module}.active_session", lambda: None)
    monkeypatch.setattr("txtopo.runtime.start.open_own_session", refuse)
    memory = ("--set", "zookeeper.hosts=memory")

    assert run(["run", *memory, "counting_here:in_need", "--master", "local[1]"]) == WRONG_CALL

    assert masters == ["local[1]"]


def test_the_doctor_says_what_a_topology_lacks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    memory = ("--json", "--set", "zookeeper.hosts=memory")

    assert run(["doctor", *memory, "--topology", "counting_here:in_need"]) == FAILED

    out = capsys.readouterr().out
    checks = {each["name"]: each for each in document("doctor", out)["checks"]}
    assert checks["package redis"]["found"] == (
        "state counts.counts needs the package redis; it is not installed; install it with: "
        "pip install 'txtopo[redis]'"
    )
    for server in "Kafka (spout 'words')", "Redis (state counts.counts)":
        assert checks[server]["status"] == "failed"
        assert "127.0.0.1:1 refuses connections" in checks[server]["found"]
    assert "s3cret-word" not in out

    run(["doctor", *memory, "--topology", "counting_here:topology"])
    checks = {each["name"]: each for each in document("doctor", capsys.readouterr().out)["checks"]}
    assert checks["packages of counting"]["status"] == "ok"


def test_the_doctor_says_what_is_there_and_what_to_do(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "no-such-python")
    url = "postgresql://user:s3cret-word@127.0.0.1:1/words"

    code = run(["doctor", "--json", "--set", "zookeeper.hosts=memory", url, "nonsense:"])

    out = capsys.readouterr().out
    checks = {each["name"]: each for each in document("doctor", out)["checks"]}
    assert code == FAILED
    assert checks["python"]["status"] == "ok"
    assert checks["settings"]["found"] == "txtopo config shows each setting and where it came from"
    assert checks["spark"]["found"].startswith("pyspark 4")
    assert checks["ensemble"]["status"] == "none"
    assert "unset it" in checks["python of workers"]["found"]
    assert checks["postgresql://user:***@127.0.0.1:1/words"]["status"] == "failed"
    assert checks["nonsense:"]["status"] == "failed"
    assert "s3cret-word" not in out

    monkeypatch.delenv("PYSPARK_PYTHON")
    run(["doctor", "--dir", "nothing"])
    assert "failed  " in next(
        line for line in capsys.readouterr().out.splitlines() if line.startswith("ensemble")
    )


@pytest.mark.integration
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert f"_TXTOPO_COMPLETE={shell}_complete" in capsys.readouterr().out


@pytest.mark.integration
def test_a_verb_is_completed() -> None:
    done = txtopo(_TXTOPO_COMPLETE="bash_complete", COMP_WORDS="txtopo sho", COMP_CWORD="1")

    assert (done.stdout, done.stderr) == ("plain,show\n", "")


def verbs() -> list[str]:
    """Return all verbs, those of a group with its name before theirs."""
    found = []
    for name, verb in commands.commands.items():
        inner = verb.commands if isinstance(verb, click.Group) else {}
        found += [f"{name} {each}" for each in inner] or [name]
    return found


@pytest.mark.parametrize("verb", verbs())
def test_the_help_of_each_verb_has_an_example(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*verb.split(), "--help"]) == 0

    assert "\n  Example" in capsys.readouterr().out


def test_each_schema_is_in_the_wheel() -> None:
    assert {json.loads(each.read_text())["title"] for each in SCHEMAS.glob("*.json")}
    assert "command/schemas/*.json" in (SCHEMAS.parents[2] / "setup.cfg").read_text()


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), ("1h", 3600), ("250ms", 0.25), ("7", 7)]
)
def test_a_length_of_time_has_a_unit(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


def test_failures_are_counted_by_component_and_class_of_cause() -> None:
    failed = {"kind": "counted", "component": "convert", "txid": 4, "failures": 2}
    trees = {"kind": "trees timed out", "component": "words", "txid": None, "failures": 40}
    rows: list[dict[str, Any]] = [
        {**failed, "at_s": 10.0, "cause": "FailedException: one"},
        {**failed, "at_s": 20.0, "cause": "FailedException: two", "txid": 5},
        {**failed, "at_s": 30.0, "cause": "StoreUnavailable: away"},
        {**trees, "at_s": 40.0, "cause": "timed out"},
    ]

    counted = count_failures(rows, 15.0)

    assert [(each["cause"], each["count"]) for each in counted] == [
        ("timed out", 40),
        ("StoreUnavailable: away", 1),
        ("FailedException: two", 1),
    ]
    assert count_failures(rows, 0.0)[1]["count"] == 2


def test_a_page_of_another_machine_never_gets_the_token() -> None:
    from txtopo.command.page_client import PageClient
    from txtopo.errors import InfrastructureError
    from txtopo.operations.ensemble import TopologyStatus

    def status(page: str, host: str) -> TopologyStatus:
        summary = {"page": page, "process": {"host": host, "pid": 1}}
        return TopologyStatus("a", summary, None, (), 1, 1, None, None, {})  # type: ignore[arg-type]

    for page, words in (
        ("http://127.0.0.1:8080", "only to its own machine"),
        ("http://localhost:8080", "only to its own machine"),
        ("file:///etc/passwd", "no usable address"),
        ("http://", "no usable address"),
    ):
        with pytest.raises(InfrastructureError, match=words):
            PageClient(status(page, "another-host"), "token")


def test_a_page_that_is_gone_does_not_answer() -> None:
    from txtopo.command.page_client import PageClient
    from txtopo.ensemble.store import this_process
    from txtopo.errors import InfrastructureError
    from txtopo.operations.ensemble import TopologyStatus

    summary = {"page": "http://127.0.0.1:1", "process": {"host": this_process()["host"], "pid": 1}}
    status = TopologyStatus("a", summary, None, (), 1, 1, None, None, {})  # type: ignore[arg-type]

    with pytest.raises(InfrastructureError, match=r"does not answer; got .*refused"):
        PageClient(status, "token").figures()


def test_an_answer_that_is_not_of_a_page_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from txtopo.command.page_client import PageClient
    from txtopo.ensemble.store import this_process
    from txtopo.errors import InfrastructureError
    from txtopo.operations.ensemble import TopologyStatus

    url = "http://127.0.0.1:1"
    summary = {"page": url, "process": {"host": this_process()["host"], "pid": 1}}
    status = TopologyStatus("a", summary, None, (), 1, 1, None, None, {})  # type: ignore[arg-type]
    client = PageClient(status, None)
    monkeypatch.setattr(client._opener, "open", lambda *_, **more: io.BytesIO(b"[1]"))

    with pytest.raises(InfrastructureError, match="got a list in JSON; expected an object") as e:
        client.figures()

    assert e.value.facts == {"path": url, "got": "list"}
