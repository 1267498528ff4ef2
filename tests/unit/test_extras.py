"""Without an extra, each part that needs it says so in one form; the core needs none of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.harness import extras
from txtopo.carriers.workers import WorkerFinding, check_findings
from txtopo.errors import ConfigError, TopologyError
from txtopo.extras import EXTRAS, require
from txtopo.spouts import DeltaTransactionalSpout, KafkaOpaqueSpout, KafkaTransactionalSpout
from txtopo.stages.user_errors import missing_module, pickled_error, unpickled_error

ROOT = Path(__file__).parents[2]
FORM = re.compile(
    r"[\w.:/='-]+ needs the package (\S+); it is not installed; "
    r"install it with: pip install 'txtopo\[(\w+)\]'"
)


def declared() -> dict[str, list[str]]:
    """Return what each extra of setup.cfg brings."""
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg")
    brought = parser["options.extras_require"]
    return {extra: brought[extra].split() for extra in brought}


@pytest.mark.integration
def test_each_part_names_its_extra_in_one_form() -> None:
    """In an interpreter in which no package of an extra can be imported."""
    script = str(ROOT / "tests" / "harness" / "extras.py")
    done = subprocess.run(
        [sys.executable, "-P", script, *EXTRAS], capture_output=True, text=True, check=True
    )

    packages = {(extra.package, extra.name) for extra in EXTRAS.values()}
    for extra, said in json.loads(done.stdout):
        assert (found := FORM.fullmatch(said)), said
        assert found.groups() in packages, said
        assert found[2] == extra, said


def test_the_table_has_every_extra_with_its_package() -> None:
    ours = {(extra.name, extra.package.partition("[")[0]) for extra in EXTRAS.values()}
    brought = {
        (extra, re.split(r"[\[<>=]", need)[0])
        for extra, needs in declared().items()
        if extra not in ("all", "docs", "test")
        for need in needs
    }

    assert ours == brought
    assert {extra for extra, _ in extras.USES} == {extra for extra, _ in ours}


def test_all_has_what_a_program_can_use_and_tests_have_all() -> None:
    brought = declared()
    everything = {extra.name for extra in EXTRAS.values()} - {"conformance"}

    assert brought["all"] == [f"txtopo[{','.join(sorted(everything))}]"]
    assert brought["test"][0] == "txtopo[all,conformance,docs]"


def test_the_pages_name_each_extra() -> None:
    names = {*declared()} - {"docs", "test"}
    install = (ROOT / "README.md").read_text().partition("## The first program")[0]
    page = (ROOT / "docs" / "how-to" / "installation.md").read_text()

    assert set(re.findall(r"`(\w+)`", install)) >= names
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == names


@pytest.mark.integration
def test_the_core_imports_no_extra() -> None:
    """The modules that a first program imports, and those behind every public name."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({[*EXTRAS, 'pandas']!r}))\n"
        "from txtopo import *\n"
        "import txtopo.operations, txtopo.plugins.spouts, txtopo.plugins.stores, txtopo.testing\n"
        "from txtopo.spouts import *\n"
        "from txtopo.bolts import *\n"
        "from txtopo.runtime.start import start_topology\n"
        "import txtopo.ensemble.zookeeper.state\n"
        "open_state('sqlite:///none.db', table='counts').open().close()"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_package_that_is_broken_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "redis.py").write_text("import no_such_part")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "redis", raising=False)

    with pytest.raises(ConfigError, match=r"it cannot be imported \(No module named 'no_such_part"):
        require("redis", "redis://")


def test_a_worker_that_lacks_an_extra_is_told_what_to_install_there() -> None:
    error = missing_module("confluent_kafka")

    assert isinstance(error, TopologyError)
    assert "of the package confluent-kafka; install it in the Python of every executor" in str(
        error
    )
    assert "pip install 'txtopo[kafka]'" in str(error)


def test_an_extra_that_only_a_worker_lacks_is_asked_for_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A state that a task opens says what is missing as in the driver, which may have it."""
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError) as caught:
        require("redis", "redis://")

    sent = unpickled_error(pickled_error(caught.value, "counts"), "counts", "in task 0")
    assert "a worker cannot import 'redis', of the package redis; install it in" in str(sent)


def test_the_probe_of_executors_names_the_extras() -> None:
    lacking = [("confluent_kafka", "gone"), ("zmq", "gone"), ("mine", "gone")]

    with pytest.raises(ConfigError, match=r"with pip install 'txtopo\[kafka,resident\]', or ship"):
        check_findings([WorkerFinding("host", "python3", tuple(lacking))], remote=True)
    with pytest.raises(ConfigError, match=r"packages there with pip, or ship"):
        check_findings([WorkerFinding("host", "python3", (("mine", "gone"),))], remote=True)


def test_spouts_name_the_client_that_their_tasks_import() -> None:
    assert KafkaTransactionalSpout.client_modules == ("confluent_kafka",)
    assert KafkaOpaqueSpout.client_modules == ("confluent_kafka",)
    word = extras.WORD
    assert DeltaTransactionalSpout("folder", word).client_modules == ()
    assert DeltaTransactionalSpout("s3://bucket/words", word).client_modules == ("deltalake",)
