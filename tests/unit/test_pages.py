"""Every program of README and docs runs as it stands, and what pages tell to type exists.

A page is a user who pastes its ``python`` blocks, from top to bottom, into one file in an empty
folder. Marks in the page, each a comment on the line before a block:

* ``<!-- needs: kafka -->`` (or several, with commas): the block needs a server, Spark or jars.
  :data:`SERVERS` has what a page may need, and the address that it uses in the page.
* ``<!-- tested by: test_tutorial.py -->``: another test runs the block, since it needs what a
  command of the page has made, or runs until it is stopped. It is no part of the page's program.

A ``text`` block after a program, with nothing between but blank lines or a line that has the word
"print", is the output of the program, or its log if it prints nothing; ``…`` stands for anything.
The programs run in a process of their own, which is forked from one that has imported txtopo. Those
that keep their progress in a file run twice: the second run finds nothing left to do, and prints
the same.

The tests in a page (a class or function of the name that pytest expects) run as well; those that
are suites of txtopo, which its own stores run in ``make test``, do so in ``make test-all``.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any
from uuid import uuid4

import pytest
from sybil import Document
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

from tests.harness.forked import ForkedPython
from tests.harness.polling import wait_until
from tests.harness.spark_session import SHORT_LIVED
from tests.unit.test_layout import ROOT
from tests.unit.test_references import PAGES
from txtopo import open_state
from txtopo.config import PROGRESS_FILE
from txtopo.errors import TxtopoError

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
LIMIT_S = 560
README_BYTES_MAX = 8_000
FIRST_PROGRAM_LINES_MAX = 25

# Each need: the address in pages, the fixture of the server, and its real address. What has no
# server is started by the page.
SERVERS: dict[str, tuple[str, str, Callable[[Any], str]] | None] = {
    "kafka": ("broker:9092", "kafka", lambda broker: str(broker.servers)),
    "mariadb": (
        "mariadb://user:password@host/database",
        "mariadb",
        lambda server: str(server.create_database(f"pages_{uuid4().hex}")),
    ),
    "postgresql": (
        "postgresql://user:password@host/database",
        "postgresql",
        lambda server: str(server.create_database(f"pages_{uuid4().hex}")),
    ),
    "rabbitmq": ("amqp://user:password@host/", "rabbitmq", lambda server: str(server.url())),
    "redis": ("redis://:password@host/0", "redis_server", lambda server: str(server.empty())),
    "zookeeper": (
        "zk1:2181,zk2:2181,zk3:2181",
        "zookeeper",
        lambda server: f"{server.hosts}/{uuid4()}",
    ),
    "schema-registry": (
        "http://registry:8081",
        "schema_registry",
        lambda registry: str(registry.url),
    ),
    "spark-connect": ("sc://host:15002", "connect_server", lambda server: str(server.url)),
    "spark": None,
    "delta-spark": None,
}

# The address in the tutorial, of a server on the reader's machine, and the one in other pages.
ON_THIS_MACHINE = {
    "localhost:9092": "broker:9092",
    "postgresql://txtopo:tutorial@localhost/states": "postgresql://user:password@host/database",
    "localhost:2181": "zk1:2181,zk2:2181,zk3:2181",
}

FENCES = FencedCodeBlockLexer(r"[^\n`]*")
NEEDS = re.compile(r"<!-- needs: ([\w, -]+) -->")
TESTED_BY = re.compile(r"<!-- tested by: (test_\w+\.py) -->")
CODE = re.compile(r"^ *```(?!python).*\n(?:.*\n)*?^ *```$|`[^`\n]+`", re.MULTILINE)
SUITES = "txtopo.testing.conformance"
TESTS = re.compile(r"^ *(class Test|def test_)", re.MULTILINE)
END_OF_BLOCK = "\0end of the block in line "


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        line: The line of its first fence, from 1.
        language: What is named after the fence.
        text: Its lines, without the indentation of the fence.
        needs: What it needs.
        tested_by: The name of the other test that runs it, if one does.
        follows: Whether it is the output of the program before it.
    """

    line: int
    language: str
    text: str
    needs: tuple[str, ...]
    tested_by: str | None
    follows: bool


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    ended = 0
    for region in FENCES(Document(text, "page.md")):
        between = [line.strip() for line in text[ended : region.start].splitlines() if line.strip()]
        mark = NEEDS.fullmatch(between[-1]) if between else None
        other = TESTED_BY.fullmatch(between[-1]) if between else None
        yield Block(
            line=text.count("\n", 0, region.start) + 1,
            language=region.lexemes["language"],
            text=str(region.lexemes["source"]),
            needs=tuple(need.strip() for need in mark[1].split(",")) if mark else (),
            tested_by=other[1] if other else None,
            follows=not between or (len(between) == 1 and "print" in between[0]),
        )
        ended = region.end


def programs_of(text: str) -> list[Block]:
    """Return the blocks of a page that are Python, but those that another test runs."""
    return [
        block for block in blocks_of(text) if block.language == "python" and block.tested_by is None
    ]


def outputs_of(text: str) -> dict[int, str]:
    """Return the outputs that a page shows, by the line of the program."""
    blocks = list(blocks_of(text))
    return {
        program.line: shown.text
        for program, shown in pairwise(blocks)
        if program.language == "python" and shown.language == "text" and shown.follows
    }


def script_of(text: str) -> str:
    """Return the programs of a page as one script, in which each stands in its own line."""
    script: list[str] = []
    for program in programs_of(text):
        script += [""] * (program.line - len(script))
        end = f"print({END_OF_BLOCK + str(program.line)!r}, flush=True, file=__import__('sys')"
        script += [*program.text.splitlines(), f"{end}.stdout); {end}.stderr)"]
    return "\n".join(script) + "\n"


def matches(printed: str, shown: str) -> bool:
    """Whether an output is the one that a page shows, where ``…`` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in shown.strip().split("…"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


@pytest.fixture(scope="module")
def python() -> Iterator[ForkedPython]:
    with closing(ForkedPython(environment(), LIMIT_S)) as python:
        yield python


def run_page(python: ForkedPython, name: str, text: str, folder: Path) -> None:
    """Run the programs of a page, and compare what they print with what it shows.

    Fails the test if a program fails, or prints something else.
    """
    done = python.run(write_script(name, text, folder), folder)
    if done.returncode:
        pytest.fail(f"a program of {name} fails: {done.stderr[-4000:]}", pytrace=False)
    printed, logged = parts_of(done.stdout), parts_of(done.stderr)
    for line, shown in outputs_of(text).items():
        if not matches(printed[line] or logged[line], shown):
            differs = f"{name}:{line} prints\n{printed[line]}{logged[line]}\nand the page shows\n"
            pytest.fail(differs + shown, pytrace=False)


def run_tests(name: str, text: str, folder: Path) -> None:
    """Run the tests of a page. Fails the test if one fails."""
    script = write_script(name, text, folder)
    tests = run_python(["-m", "pytest", "-q", "-p", "no:cacheprovider", script], folder)
    if tests.returncode:
        pytest.fail(f"a test of {name} fails: {tests.stdout[-4000:]}", pytrace=False)


def write_script(name: str, text: str, folder: Path) -> str:
    """Write the programs of a page into a folder, and return the name of the file."""
    script = f"{Path(name).stem.replace('-', '_').lower()}_page.py"
    (folder / script).write_text(script_of(text))
    return script


def parts_of(output: str) -> dict[int, str]:
    """Return what each program wrote to an output, by its line."""
    parts = re.split(rf"{END_OF_BLOCK}(\d+)\n", output)
    return {int(line): part for part, line in zip(parts[::2], parts[1::2], strict=False)}


def run_python(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run this environment's Python in a folder."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def environment() -> dict[str, str]:
    """Return the environment of a user who has installed this checkout, with a small Spark."""
    java = f"--driver-memory 1g --driver-java-options '{SHORT_LIVED}'"
    submit = f"{java} --conf spark.ui.enabled=false pyspark-shell"
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": submit}


# Pages that start a JVM to show what tests of the code show as well; ``make test-all`` runs them.
NIGHTLY = frozenset(
    {"command-line", "dataframes", "reading-states", "spark-connect", "structured-streaming"}
)

# Pages that print what is there in the middle of a run.
ONCE = frozenset({"backfill"})


def pages_with_programs() -> list[Any]:
    """Return each page that has programs, with the marks of what they need."""
    pages = []
    for page in PAGES:
        programs = programs_of(page.read_text())
        needs = sorted({need for program in programs for need in program.needs})
        marks = [
            pytest.mark.spark if need == "spark" else pytest.mark.service(need) for need in needs
        ]
        if page.stem in NIGHTLY:
            marks.append(pytest.mark.slow)
        if programs:
            pages.append(pytest.param(page, needs, marks=marks, id=page.stem))
    return pages


def pages_with_tests() -> list[Any]:
    """Return each page that has tests of its own."""
    texts = {page: script_of(page.read_text()) for page in PAGES}
    return [
        pytest.param(page, marks=[pytest.mark.slow] if SUITES in text else [], id=page.stem)
        for page, text in texts.items()
        if TESTS.search(text)
    ]


@pytest.mark.parametrize(("page", "needs"), pages_with_programs())
def test_the_programs_of_a_page_run_and_print_what_it_shows(
    page: Path,
    needs: list[str],
    python: ForkedPython,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    text = page.read_text()
    for here, address in ON_THIS_MACHINE.items():
        text = text.replace(here, address)
    for need in needs:
        server = SERVERS[need]
        if server is not None:
            address, fixture, real = server
            assert address in text, f"{page.name} needs {need}, but does not name {address}"
            text = text.replace(address, real(request.getfixturevalue(fixture)))

    run_page(python, page.name, text, tmp_path)
    if (tmp_path / PROGRESS_FILE.removeprefix("file:")).exists() and page.stem not in ONCE:
        run_page(python, page.name, text, tmp_path)  # it continues, with nothing left to do


@pytest.mark.parametrize("page", pages_with_tests())
def test_the_tests_of_a_page_pass(page: Path, tmp_path: Path) -> None:
    run_tests(page.name, page.read_text(), tmp_path)


def test_a_program_that_fails_is_named_with_its_page_and_line(
    python: ForkedPython, tmp_path: Path
) -> None:
    text = "# A page\n\n```python\na = 1\n```\n\nText.\n\n```python\n\na.b\n```\n"

    with pytest.raises(
        pytest.fail.Exception, match=r"(?s)of a-page\.md .*line 11, .*no attribute 'b'"
    ):
        run_page(python, "a-page.md", text, tmp_path)


def test_a_program_with_a_gap_in_it_fails(python: ForkedPython, tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="SyntaxError"):
        run_page(python, "a-page.md", "```python\nprint(…)\n```\n", tmp_path)


def test_an_output_that_is_not_what_the_page_shows_is_noticed(
    python: ForkedPython, tmp_path: Path
) -> None:
    text = "```python\nprint(1)\n```\n\nIt prints:\n\n```text\n2\n```\n"

    with pytest.raises(pytest.fail.Exception, match=r"(?s)a-page\.md:1 prints\n1\n.*shows\n2"):
        run_page(python, "a-page.md", text, tmp_path)


def test_dots_in_an_output_stand_for_anything(python: ForkedPython, tmp_path: Path) -> None:
    text = "```python\nprint(1, 2, 3)\n```\n\n```text\n1 … 3\n```\n"

    run_page(python, "a-page.md", text, tmp_path)


def test_a_failing_test_in_a_page_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"a test of a-page\.md fails"):
        run_tests("a-page.md", "```python\ndef test_one():\n    assert False\n```\n", tmp_path)


def test_what_a_page_needs_is_known() -> None:
    unknown = [
        f"{page.name}:{block.line} needs {need}"
        for page in PAGES
        for block in blocks_of(page.read_text())
        for need in block.needs
        if need not in SERVERS
    ]

    assert not unknown, f"{unknown}; known are {', '.join(SERVERS)}"


def test_a_block_that_another_test_runs_is_read_by_that_test() -> None:
    for page in PAGES:
        for other in {block.tested_by for block in blocks_of(page.read_text())} - {None}:
            (test,) = (ROOT / "tests").rglob(str(other))

            assert page.name in test.read_text(), f"{test.name} does not read {page.name}"


def test_no_program_hides_in_a_block_that_is_not_run() -> None:
    """Programs of others, such as Bytewax, are ``text``; ours are ``python``."""
    hidden = [
        f"{page.name}:{block.line}"
        for page in PAGES
        for block in blocks_of(page.read_text())
        if block.language != "python" and imports_txtopo(block.text)
    ]

    assert not hidden, f"{hidden} are programs that import txtopo; make them python blocks"


def imports_txtopo(text: str) -> bool:
    """Whether a text is a Python program that imports txtopo."""
    try:
        nodes = list(ast.walk(ast.parse(dedent(text))))
    except (SyntaxError, ValueError):
        return False
    names = [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return any(name.partition(".")[0] == "txtopo" for name in names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from txtopo import Config\n", True),
        ("    import txtopo.spouts\n", True),
        ("import sqlite3\n", False),
        ("$ txtopo list\n", False),
    ],
)
def test_a_program_of_txtopo_is_told_from_others(text: str, expected: bool) -> None:
    assert imports_txtopo(text) is expected


def test_the_commands_of_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = set(setup["options.extras_require"])
    lost = []
    for page in PAGES:
        for code in CODE.findall(page.read_text()):
            lost += [
                f"{page.name}: make {target}"
                for target in re.findall(r"(?:^|`) *make ([a-z][a-z-]*)", code, re.MULTILINE)
                if target not in targets
            ]
            lost += [
                f"{page.name}: python -m {module}"
                for module in re.findall(r"-m ((?:txtopo|examples|tests|benchmarks)[\w.]*)", code)
                if not module_exists(module)
            ]
            lost += [
                f"{page.name}: txtopo[{extra}]"
                for found in re.findall(r"txtopo\[([\w,]+)\]", code)
                for extra in found.split(",")
                if extra not in extras
            ]

    assert not lost, "\n".join(lost)


def test_the_readme_is_short_and_begins_with_a_program_to_paste() -> None:
    readme = (ROOT / "README.md").read_text()
    first, *_ = programs_of(readme)

    assert len(readme.encode()) < README_BYTES_MAX
    assert (
        len([line for line in first.text.splitlines() if line.strip()]) <= FIRST_PROGRAM_LINES_MAX
    )
    assert first.line in outputs_of(readme), "its output is not shown"
    assert readme.index("pip install '.") < readme.index("```python")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.kills
def test_the_program_of_the_readme_goes_on_after_a_kill(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    program, *_ = programs_of(readme)
    (tmp_path / "first.py").write_text(program.text)
    with subprocess.Popen(
        [sys.executable, "first.py"], cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL
    ) as killed:
        wait_until(lambda: committed(tmp_path / "words.db") >= 3, lambda: "it commits")
        killed.kill()
    before = committed(tmp_path / "words.db")

    done = run_python(["first.py"], tmp_path)

    assert 3 <= before < 100, "it was not killed in the middle"
    assert done.stdout == outputs_of(readme)[program.line], done.stderr[-2000:]


def committed(database: Path) -> int:
    """Return the txid that the program's state holds; 0 before there is one."""
    if not database.exists():
        return 0
    try:
        with open_state(f"sqlite:///{database}", table="counts").reader() as reader:
            return reader.ledger.txid if reader.ledger else 0
    except TxtopoError:
        return 0


def module_exists(name: str) -> bool:
    """Whether ``python -m`` finds a module of the project."""
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
