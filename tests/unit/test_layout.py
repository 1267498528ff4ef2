"""Names and borders of the tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from configparser import ConfigParser
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("txtopo", "state_backends")
FOLDERS = (*PACKAGES, "tests", "examples", "benchmarks")
NO_NAMES = frozenset({"utils", "util", "common", "base", "core", "helpers", "impl", "manager"})
TEXT = frozenset({".py", ".md", ".cfg", ".toml", ".txt", ".yml", ".yaml", ".cff", ".in", ""})

SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def text_of(path: Path) -> str:
    return path.read_text()


def test_a_file_is_named_for_its_idea() -> None:
    for path in SOURCES:
        assert path.stem not in NO_NAMES, name_of(path)
        assert path.parent.name not in NO_NAMES, name_of(path)


def test_text_is_cut_at_newlines_only() -> None:
    """``str.splitlines`` also cuts at U+2028, U+0085 and others, which a value may have."""
    for path in (each for folder in PACKAGES for each in (ROOT / folder).rglob("*.py")):
        for word in (".splitlines(", ".readlines("):
            assert word not in text_of(path), f"{name_of(path)} cuts text with {word}…)"


def test_an_init_only_exports_and_its_names_are_sorted() -> None:
    for path in SOURCES:
        body = ast.parse(text_of(path)).body if path.name == "__init__.py" else []
        for node in body:
            where = f"{name_of(path)}:{node.lineno}"
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names = ast.literal_eval(node.value)
                assert names == sorted(names), where
            else:
                assert exports(node), f"{where} does more than export"


def exports(node: ast.stmt) -> bool:
    """A docstring, an import, the version, or what imports a name when it is first used."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return "_LAZY" in ast.unparse(node) or ast.unparse(node).startswith("__version__ = ")
    return isinstance(node, ast.Import | ast.ImportFrom)


@pytest.mark.integration
def test_no_two_classes_share_a_name() -> None:
    """Also private ones: a traceback, a log record and a search name the class only."""
    homes: dict[str, str] = {}
    for path in SOURCES:
        if path.relative_to(ROOT).parts[0] not in PACKAGES:
            continue
        for node in ast.walk(ast.parse(text_of(path))):
            if isinstance(node, ast.ClassDef):
                where = f"{name_of(path)}:{node.lineno}"
                other = homes.setdefault(node.name, where)
                assert other == where, f"{node.name} is in {other} and {where}"


def test_what_has_one_place_is_done_there_alone() -> None:
    """Two of them would soon differ: the same mistake would get two answers."""
    places = {
        "get_close_matches(": "txtopo/errors.py",
        "(it cannot be printed)": "txtopo/errors.py",
        ".isprintable()": "txtopo/errors.py",
    }
    for text, place in places.items():
        found = {name_of(path) for path in SOURCES if text in text_of(path)}
        assert {name for name in found if name.startswith(PACKAGES)} == {place}, text


def test_each_folder_of_the_package_has_its_tests() -> None:
    folders = {path.name for path in (ROOT / "txtopo").iterdir() if (path / "__init__.py").exists()}

    assert folders <= {path.name for path in (ROOT / "tests" / "unit").iterdir()}


def layers_on_the_page() -> list[str]:
    """Return the lines of the picture: the modules of each layer, and the lines between them."""
    block = text_of(ROOT / "ARCHITECTURE.md").partition("## Layers")[2].split("```")[1]
    lines = block.partition("state_backends")[0].strip().splitlines()
    return [re.split(r"\s{2,}", line)[0] for line in lines]


def contract(name: str) -> dict[str, list[str]]:
    """Return the lists of an import contract."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    section = setup[f"importlinter:contract:{name}"]
    return {key: value.strip().splitlines() for key, value in section.items()}


def test_the_layers_on_the_page_are_those_that_are_checked() -> None:
    shown = [line for line in layers_on_the_page() if not line.startswith("─")]

    assert shown == [re.sub(r"[()]", "", line.strip()) for line in contract("layers")["layers"]]


def test_the_core_on_the_page_is_the_one_that_is_checked() -> None:
    lines = layers_on_the_page()
    border = next(number for number, line in enumerate(lines) if "the core" in line)
    below = {f"txtopo.{name}" for line in lines[border + 1 :] for name in re.findall(r"\w+", line)}
    above = {f"txtopo.{name}" for line in lines[:border] for name in re.findall(r"\w+", line)}
    checked = contract("core_knows_no_wing")

    packages = {name for name in below if (ROOT / name.replace(".", "/")).is_dir()}
    assert packages == set(checked["source_modules"])
    assert above - {"txtopo.plugins"} == set(checked["forbidden_modules"]) - {"txtopo.wings"}


def test_nothing_names_the_machine_it_was_written_on() -> None:
    machine = re.compile(r"/(?:work|tmp|root|home)/\w|\b(?:pypi|registry|mirror)\.[a-z]+\.\w|PIP_")

    for path in texts():
        found = machine.search(text_of(path))
        assert found is None, f"{name_of(path)} has {found.group()!r}"


def texts() -> Iterator[Path]:
    """Every text of the project but this file and the licence."""
    # In a worktree, .git is a file with the path of its repository.
    own = (path for path in ROOT.iterdir() if path.is_file() and path.name != ".git")
    yield from (path for path in own if path.suffix in TEXT)
    for folder in (*FOLDERS, "docker", ".ci", ".github"):
        for path in (ROOT / folder).rglob("*"):
            wanted = path.is_file() and path.suffix in TEXT and path != Path(__file__)
            if wanted and "__pycache__" not in path.parts:
                yield path
