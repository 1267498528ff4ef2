"""An installation as a user makes it: the wheel in an empty environment, without extras or with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import extras
from tests.harness.release import build
from tests.unit.test_pages import outputs_of, programs_of
from txtopo import __version__
from txtopo.extras import EXTRAS

# It fetches 400 MB, and runs suites that take a minute on a machine with nothing else to do.
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1_800)]
ROOT = Path(__file__).parents[3]
WORD_COUNT = """
import sys
from txtopo import (
    Config, Count, Fields, PersistentAggregate, TransactionalTopologyBuilder, open_state
)
from txtopo.spouts import MemoryTransactionalSpout

if __name__ == "__main__":
    words = [["cat"], ["dog"], ["cat"]]
    spout = MemoryTransactionalSpout({0: words}, Fields("word string"), 2)
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    counts = PersistentAggregate(open_state("sqlite:///words.db"), "word", Count())
    builder.set_bolt("counts", counts).fields_grouping("spout", "word")
    topology = builder.build_topology()
    settings = dict(pair.split("=") for pair in sys.argv[1:])
    with topology.start(config=Config(**settings)) if settings else topology.start() as run:
        run.process_all_available()
    with open_state("sqlite:///words.db", table="counts").reader() as reader:
        print(dict(sorted(reader.items())))
"""


class Environment:
    """An environment of its own, with the wheel and what the wheel brings."""

    def __init__(self, folder: Path, wheel: Path, extra: str = "") -> None:
        self.folder = folder
        self.run(sys.executable, "-m", "venv", str(folder))
        self.python = str(folder / "bin" / "python")
        needed = f"{wheel}[{extra}]" if extra else str(wheel)
        self.pip("install", "--quiet", "-c", str(ROOT / "constraints.txt"), needed)

    def run(self, *command: str, status: int = 0) -> str:
        """Run a command in an empty folder outside of the repository; return what it printed."""
        place = self.folder / "place"
        place.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            command,
            cwd=place,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == status, done.stdout[-5_000:] + done.stderr[-5_000:]
        return done.stdout

    def pip(self, *arguments: str) -> str:
        """Run pip there."""
        quiet = ("--disable-pip-version-check", "--no-input")
        return self.run(self.python, "-m", "pip", *quiet, *arguments)

    def packages(self) -> set[str]:
        """Return the names of its packages, in small letters."""
        listed = json.loads(self.pip("list", "--format", "json"))
        return {each["name"].lower().replace("_", "-") for each in listed}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))[1]


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("core"), wheel)


def test_without_extras_no_package_of_an_extra_is_there(core: Environment) -> None:
    installed = core.packages()

    assert {"pyspark", "kazoo", "sqlalchemy", "delta-spark"} <= installed
    assert not {extra.package.lower() for extra in EXTRAS.values()} & installed


def test_the_version_of_the_wheel_is_that_of_the_package(core: Environment, wheel: Path) -> None:
    told = core.run(core.python, "-c", "import txtopo; print(txtopo.__version__)").strip()

    assert wheel.name.split("-")[1] == told == __version__


def test_the_first_program_of_the_readme_needs_nothing_more(core: Environment) -> None:
    readme = (ROOT / "README.md").read_text()
    program, *_ = programs_of(readme)
    core.run("true")
    (core.folder / "place" / "first.py").write_text(program.text)

    assert core.run(core.python, "first.py") == outputs_of(readme)[program.line]


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["zookeeper=memory", "carrier=local"],
        ["zookeeper=embedded", "carrier=dataframe"],
    ],
    ids=["default", "local", "dataframe"],
)
def test_without_extras_words_are_counted(core: Environment, settings: list[str]) -> None:
    place = core.folder / "place"
    shutil.rmtree(place)
    place.mkdir()
    (place / "words.py").write_text(WORD_COUNT)

    assert core.run(core.python, "words.py", *settings) == "{'cat': 2, 'dog': 1}\n"


def test_without_extras_each_part_says_which_one_it_needs(core: Environment) -> None:
    said = json.loads(core.run(core.python, "-P", str(ROOT / "tests" / "harness" / "extras.py")))

    assert len(said) == len(extras.USES)
    for extra, text in said:
        assert f"it is not installed; install it with: pip install 'txtopo[{extra}]'" in text


def test_the_commands_need_no_extra(core: Environment) -> None:
    core.run(str(core.folder / "bin" / "txtopo-simulate"), "--seeds", "1")
    core.run(str(core.folder / "bin" / "txtopo"), "--help")


def test_the_extra_conformance_brings_pytest_and_no_more(
    core: Environment, wheel: Path, tmp_path: Path
) -> None:
    """With it the suites of a plug-in run, here those of the example."""
    environment = Environment(tmp_path / "environment", wheel, "conformance")
    assert environment.packages() - core.packages() == {
        *("pytest", "iniconfig", "packaging", "pluggy", "pygments")
    }

    example = tmp_path / "json_store"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "examples" / "json_store", example, ignore=ignored)
    environment.pip("install", "--quiet", "--no-deps", str(example))
    options = ("-q", "-p", "no:cacheprovider", "--rootdir", str(example))
    told = environment.run(environment.python, "-m", "pytest", *options, str(example / "tests"))
    assert " passed" in told
