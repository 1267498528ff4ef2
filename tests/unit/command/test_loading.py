"""A topology is found by module:attribute or file.py:attribute, and an error says what there is."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from txtopo.command.loading import load_topology, load_transactional
from txtopo.errors import TopologyError
from txtopo.stages.pickling import dumps

WORDS = """
from txtopo import BasicBolt, Fields, TopologyBuilder, TransactionalTopologyBuilder
from txtopo.spouts import MemorySpout, MemoryTransactionalSpout

FIELDS = Fields("word string")
builder = TransactionalTopologyBuilder(
    "words", "spout", MemoryTransactionalSpout({0: [["a"]]}, FIELDS, 1)
)

class Same(BasicBolt):
    output_fields = FIELDS

    def execute(self, tuple, collector):
        collector.emit([tuple["word"]])

builder.set_bolt("same", Same()).shuffle_grouping("spout")

def build(times=1):
    return builder.build_topology()

def reliable():
    shouting = TopologyBuilder("shouting")
    shouting.set_spout("words", MemorySpout([["a"]], FIELDS))
    return shouting.build_topology()

def needs(url):
    return build()

def divides():
    return 1 / 0

def nothing():
    return None
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "words_here.py").write_text(WORDS)
    yield tmp_path
    # Only those of the folder: a library that is imported twice is two libraries.
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


def said(place: str) -> str:
    with pytest.raises(TopologyError) as raised:
        load_topology(place)
    return str(raised.value)


def test_a_module_with_a_builder_alone_is_told_the_line_that_is_missing(folder: Path) -> None:
    """The first program of README.md is one."""
    (folder / "first_here.py").write_text(WORDS.partition("def build")[0])

    assert "topology = builder.build_topology()" in said("first_here.py")


YAML = """
topology: same-words
spouts:
  - id: words
    class: txtopo.spouts.MemoryTransactionalSpout
    arguments: {partitions: {0: [[a]]}, fields: {fields: word string}, batch_rows_max: 1}
bolts:
  - {id: same, class: words_here.Same}
streams:
  - {from: words, to: same, grouping: shuffle}
"""


@pytest.mark.parametrize("name", ["words.yaml", "words.yml", "deep/words.yaml"])
def test_a_yaml_file_is_a_topology_of_the_classes_of_the_modules_named(
    folder: Path, name: str
) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(YAML)

    assert load_topology(name, ["words_here"]).id == "same-words"
    assert load_transactional(name, ["words_here"]).id == "same-words"
    assert "--module" in said(name)
    assert "a YAML file defines a single topology" in said(f"{name}:topology")


def test_a_module_beside_a_yaml_file_that_is_not_one_is_refused(folder: Path) -> None:
    with pytest.raises(
        TopologyError, match="--module is only for a YAML file; got --module words_here"
    ):
        load_topology("words_here.py:build", ["words_here"])


@pytest.mark.parametrize("place", ["words_here:build", "words_here.py:build"])
def test_a_function_of_a_module_or_a_file_is_called(folder: Path, place: str) -> None:
    assert load_topology(place).id == "words"


def test_the_attribute_may_be_left_out_where_a_module_has_one_topology(folder: Path) -> None:
    (folder / "words_here.py").write_text(WORDS + "\ntopology = again = build()\n")

    assert load_topology("words_here").id == "words"


def test_a_module_without_a_topology_names_its_functions(folder: Path) -> None:
    assert "functions: build, reliable, needs, divides, nothing" in said("words_here")


def test_a_module_with_two_topologies_names_them(folder: Path) -> None:
    (folder / "words_here.py").write_text(WORDS + "\none = build()\ntwo = reliable()\n")

    assert "has 2 topologies" in said("words_here")
    assert "topologies: one, two" in said("words_here")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("", "does not name a module"),
        (":build", "does not name a module"),
        ("..", "does not name a module"),
        ("nowhere", "there is no module 'nowhere'"),
        ("words_here.more", "there is no module 'words_here.more'"),
        ("nowhere.py", "'nowhere.py' does not exist"),
        ("./", "'.' is not a file"),
        ("words_here:bild", "did you mean 'build'?"),
        ("words_here:builder", "call build_topology() on the builder"),
        ("words_here:FIELDS", "got an object of Fields"),
        ("words_here:Same", "got the class Same"),
        ("words_here:needs", "missing a required argument: 'url'"),
        ("words_here:nothing", "returns no topology; got None"),
        ("words_here:divides", "ZeroDivisionError: division by zero; in "),
    ],
)
def test_what_is_no_topology_is_refused(folder: Path, place: str, words: str) -> None:
    assert words in said(place)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f(:", "invalid syntax (wrong_here.py, line 1)"),
        ("x = 1\nimport not_there_at_all", "No module named 'not_there_at_all'; in "),
        ("x = 1\n\n1 / 0", "wrong_here.py, line 3"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("place", ["wrong_here", "wrong_here.py"])
def test_an_import_that_fails_says_where(folder: Path, place: str, text: str, words: str) -> None:
    (folder / "wrong_here.py").write_text(text)

    assert words in said(place)


def test_a_file_named_as_an_imported_module_is_refused(folder: Path) -> None:
    (folder / "json.py").write_text(WORDS)

    assert "rename the file" in said("json.py:build")


def test_classes_of_a_file_go_to_workers_by_value(folder: Path) -> None:
    topology = load_topology("words_here.py:build")

    pickled = dumps(topology.graph.components["same"].prototype)
    del sys.modules["words_here"]
    (folder / "words_here.py").unlink()

    assert type(pickle.loads(pickled)).__name__ == "Same"


def test_an_operation_refuses_an_at_least_once_topology(folder: Path) -> None:
    with pytest.raises(TopologyError, match="keeps no ledgers"):
        load_transactional("words_here:reliable")
