"""Topologies from YAML files: what they build, and what is refused with its line and column."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from txtopo import Config, ReliableTopology, Topology, open_state
from txtopo.errors import TopologyError
from txtopo.yaml.document import YamlDocument
from txtopo.yaml.loading import topology_from_yaml

WORDS = """
topology: words
spouts:
  - id: words
    class: txtopo.spouts.MemoryTransactionalSpout
    arguments:
      - {0: [[cat], [dog], [cat]], 1: [[cat]]}
      - {fields: word string}
      - 2
    parallelism: 2
bolts:
  - id: counts
    class: txtopo.PersistentAggregate
    arguments: [{state: "${STORE}", table: counts}, word, {class: txtopo.Count}]
    parallelism: ${TASKS:-2}
streams:
  - {from: words, to: counts, grouping: fields, fields: [word]}
"""

OWN = """
from subprocess import Popen
from txtopo import BasicBolt, BatchBolt, Committer, Fields

class Bad(ValueError): pass

class Shout(BasicBolt):
    output_fields = Fields("word string")

    def execute(self, tuple, collector):
        collector.emit([tuple["word"].upper()])

class Last(BatchBolt, Committer):
    def prepare(self, config, context, collector, attempt): pass

    def execute(self, tuple): pass

    def finish_batch(self): pass
"""

Build = Callable[..., Topology | ReliableTopology]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    own = tmp_path / "modules"
    own.mkdir()
    (own / "own_bolts.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(own))
    monkeypatch.delitem(sys.modules, "own_bolts", raising=False)

    def built(text: str, modules: tuple[str, ...] = (), **environment: str) -> object:
        path = tmp_path / "words.yaml"
        path.write_text(text)
        store = {"STORE": f"sqlite:///{tmp_path / 'words.db'}"}
        return topology_from_yaml(path, modules=modules, environment=store | environment)

    return built  # type: ignore[return-value]


def test_a_topology_is_built_and_counts(build: Build, tmp_path: Path) -> None:
    topology = build(WORDS)
    assert isinstance(topology, Topology)

    with topology.start(config=Config(carrier="local", zookeeper="memory")) as run:
        run.process_all_available()

    state = open_state(f"sqlite:///{tmp_path / 'words.db'}", table="counts")
    with state.reader() as reader:
        assert dict(reader.items()) == {"cat": 3, "dog": 1}
    assert topology.graph.components["counts"].parallelism == 2


def test_variables_come_from_the_environment(build: Build) -> None:
    topology = build(WORDS, TASKS="3")

    assert topology.graph.components["counts"].parallelism == 3


def test_two_dollars_stand_for_one() -> None:
    text = b"- $${B}\n- ${B}\n- $B\n- $$\n- '${B}'\n- ${C:-}\n"
    found = YamlDocument("x.yaml", {"B": "b"}).parsed(text)

    assert [each.value for each in found.value] == ["${B}", "b", "$B", "$$", "b", None]


def test_an_at_least_once_topology_has_any_number_of_spouts(build: Build) -> None:
    text = """
topology: shouting
kind: at-least-once
spouts:
  - {id: words, class: txtopo.spouts.MemorySpout, arguments: [[[a]], {fields: word string}]}
  - {id: more, class: txtopo.spouts.MemorySpout, arguments: [[[b]], {fields: word string}]}
bolts:
  - {id: shout, class: own_bolts.Shout, parallelism: 2}
streams:
  - {from: words, to: shout, grouping: shuffle}
  - {from: more, to: shout, grouping: local_or_shuffle}
"""
    topology = build(text, ("own_bolts",))

    assert isinstance(topology, ReliableTopology)
    assert [each.source for each in topology.graph.edges()] == ["words", "more"]


def test_bolts_have_states_dead_letters_and_classes_of_named_modules(build: Build) -> None:
    text = (
        WORDS.replace("bolts:", 'dead_letters: {state: "memory:", table: bad}\nbolts:')
        + """
  - {from: words, to: shout, grouping: shuffle}
  - {from: shout, to: last, grouping: global}
"""
    )
    text = text.replace(
        "streams:",
        """  - {id: shout, class: own_bolts.Shout, dead_letters_on: [ValueError, own_bolts.Bad]}
  - {id: last, class: own_bolts.Last, states: {seen: "${STORE}", other: {state: \"memory:\"}}}
streams:""",
    )
    graph = build(text, ("own_bolts",)).graph

    assert set(graph.components["last"].states) == {"seen", "other"}
    assert graph.components["shout"].dead_letters is not None
    assert "shout" not in graph.committing


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("topology: words", "topolgy: words", "line 2, column 10: unknown key 'topolgy'; did you"),
        ("topology: words", "", "line 3, column 1: key 'topology' is missing; got spouts, bolts"),
        ("topology: words", "topology: no", "got False; expected text; put it in quotes"),
        (
            "topology: words",
            "topology: words\ntopology: x",
            "line 3, column 1: key 'topology' is used",
        ),
        (
            "class: txtopo.Count}",
            "class: txtopo.Cuont}",
            "has no class 'Cuont'; did you mean 'Count'",
        ),
        (
            "class: txtopo.Count}",
            "class: os.system}",
            "is in a module that was not named; got 'os'",
        ),
        ("class: txtopo.Count}", "class: txtopo.open_state}", "has no class 'open_state'"),
        ("class: txtopo.Count}", "class: subprocess.Popen}", "got 'subprocess'; expected one of"),
        ("class: txtopo.Count}", "class: own_bolts.Popen}", "'own_bolts' has no class 'Popen'"),
        (
            "{class: txtopo.Count}",
            "!!python/object/apply:os.system [id]",
            "tags that create other ob",
        ),
        (
            "{class: txtopo.Count}",
            "!Ref x",
            "tags that create other objects are refused; got '!Ref'",
        ),
        ("[{state:", "&a [*a, {state:", "an anchor contains itself"),
        ("grouping: fields", "grouping: field", "unknown grouping 'field'; did you mean 'fields'"),
        (
            "grouping: fields, fields: [word]",
            "grouping: fields",
            "takes fields: [name, …]; got none",
        ),
        ("grouping: fields", "grouping: shuffle", "takes no fields; got fields"),
        ("to: counts", "to: count", "line 17, column 23: no bolt has the id 'count'; did you mean"),
        ("${STORE}", "${STOER}", "environment variable STOER is not set"),
        ("${STORE}", "${}", "a variable cannot be read; got '${}'"),
        ("${STORE}", "${EMPTY}", "environment variable EMPTY is empty"),
        ("${TASKS:-2}", "${TASKS:-many}", "parallelism"),
        ("${STORE}", "sqlte:///x", "line 14, column 17: no state backend for 'sqlte'; did you"),
        ("- 2", "- [2", "this is not YAML; got while parsing a flow sequence"),
        ("bolts:", "<<: {a: b}\nbolts:", "merge keys are not supported"),
        ("bolts:", "true: x\nbolts:", "neither text nor a whole number; got True"),
        ("id: counts", "id: [counts]", "this is not text; got a list"),
    ],
)
def test_a_mistake_is_refused_with_its_place(build: Build, old: str, new: str, said: str) -> None:
    assert old in WORDS
    with pytest.raises(TopologyError) as refused:
        build(WORDS.replace(old, new, 1), ("own_bolts",), EMPTY="")

    assert str(refused.value).startswith("words.yaml, line ")
    assert said in str(refused.value)
    assert refused.value.facts["line"]


def test_what_a_variable_stands_for_is_no_yaml_and_is_not_shown(build: Build) -> None:
    with pytest.raises(TopologyError) as refused:
        build(WORDS.replace("${TASKS:-2}", "${SECRET}"), SECRET="{class: os.system}")
    assert "os.system" not in str(refused.value).partition("parallelism")[0]

    with pytest.raises(TopologyError) as refused:
        build(WORDS.replace("${TASKS:-2}", "${SECRET}"), SECRET="2020-99-99")
    assert "2020-99-99" not in str(refused.value)


def test_aliases_that_repeat_each_other_are_refused(build: Build) -> None:
    lines = ["a: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    with pytest.raises(TopologyError, match="expands to too many values"):
        build("\n".join(lines))


def test_a_file_that_is_missing_or_empty_is_refused(build: Build, tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"no\.yaml' cannot be read; got No such file"):
        topology_from_yaml(tmp_path / "no.yaml")
    with pytest.raises(TopologyError, match="the file is empty"):
        build("# nothing")
    with pytest.raises(TopologyError, match="this is not a mapping; got a list"):
        build("- a")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("arguments: {1: 2}", "an argument needs a name; got 1"),
        ("arguments: [{state: 'memory:', 1: 2}]", "an argument needs a name; got 1"),
        ("parallelism: !!bool xx", "a value cannot be read; got 'xx'"),
        ("parallelism: !!float ''", "a value cannot be read; got ''"),
        ("parallelism: !!timestamp x", "a value cannot be read; got 'x'"),
        (f"arguments: {'[' * 60}{']' * 60}", "values are nested too deep"),
        (f"arguments: {'[' * 9000}{']' * 9000}", "values are nested too deep"),
    ],
)
def test_what_pyyaml_or_python_would_stumble_over_is_refused_with_its_place(
    build: Build, text: str, problem: str
) -> None:
    with pytest.raises(TopologyError, match=r"words.yaml, line \d") as raised:
        build(f"topology: a\nspouts:\n- {{id: s, class: txtopo.spouts.MemorySpout, {text}}}\n")

    assert problem in str(raised.value)


def test_a_transactional_topology_may_have_several_spouts(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(
        """
topology: two
spouts:
  - id: a
    class: txtopo.spouts.MemoryTransactionalSpout
    arguments: [{0: [[x]]}, {fields: word string}, 1]
  - id: b
    class: txtopo.spouts.OpaqueMemoryTransactionalSpout
    arguments: [{0: [[x]]}, {fields: word string}, 1]
    parallelism: 2
bolts:
  - id: count
    class: txtopo.PersistentAggregate
    arguments: [{state: "memory:"}, word, {class: txtopo.state.Count}]
streams:
  - {from: a, to: count, grouping: fields, fields: word}
  - {from: b, to: count, grouping: fields, fields: word}
"""
    )

    topology = topology_from_yaml(path)

    assert [(one.id, one.parallelism) for one in topology.graph.spouts] == [("a", 1), ("b", 2)]
