"""The graph as SVG and as Mermaid: valid for any id, without overlap, the handover in its place."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from tests.unit.explanation import topologies
from tests.unit.explanation.picture import PICTURE, drawn
from txtopo import Topology
from txtopo.explanation.layout import Arc, Node, placed

pytestmark = pytest.mark.filterwarnings("ignore::txtopo.TopologyWarning")

SVG = "{http://www.w3.org/2000/svg}"


def parsed(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture)


def named(picture: ElementTree.Element, attribute: str) -> list[str]:
    return [each.attrib[attribute] for each in picture.iter() if attribute in each.attrib]


def test_each_component_and_edge_has_its_name_as_an_attribute() -> None:
    told = topologies.words().explain()
    picture = parsed(told.svg())

    assert named(picture, "data-component") == [each.component for each in told.components]
    assert [json.loads(each) for each in named(picture, "data-edge")] == [
        [each.source, each.stream, each.target] for each in told.edges
    ]


@pytest.mark.parametrize("style", [True, False])
def test_hostile_names_stay_text(style: bool) -> None:
    told = topologies.chain(topologies.HOSTILE).explain()
    picture = parsed(told.svg(style=style))

    tags = {each.tag.removeprefix(SVG) for each in picture.iter()}
    assert tags <= {"svg", "title", "style", "g", "path", "rect", "line", "text"}
    assert ("style" in tags) == style
    assert set(named(picture, "data-component")) == {*topologies.HOSTILE, "count"}
    handlers = [name for each in picture.iter() for name in each.attrib if name.startswith("on")]
    assert not handlers
    assert not named(picture, "id")
    assert not named(picture, "style")


def test_a_picture_is_accessible() -> None:
    picture = parsed(topologies.words().explain().svg())

    assert picture.attrib["role"] == "img"
    assert picture[0].tag == f"{SVG}title"
    assert "words" in str(picture[0].text)
    assert "prefers-color-scheme" in str(picture[1].text)


def test_each_kind_of_component_has_a_form_of_its_own() -> None:
    pictures = [topologies.words().explain().svg(), topologies.frames().explain().svg()]
    forms: dict[str, set[str]] = {}
    for group in itertools.chain.from_iterable(parsed(each).iter(f"{SVG}g") for each in pictures):
        if "data-component" in group.attrib or "data-state" in group.attrib:
            form = "+".join(
                each.tag.removeprefix(SVG)
                + re.sub(r"[^A-Z]", "", each.get("d", ""))
                + ("round" if float(each.get("rx", 0)) > 10 else "" if each.get("rx") else "square")
                for each in group
                if each.tag in (f"{SVG}rect", f"{SVG}path")
            )
            forms.setdefault(str(group.get("class")), set()).add(form)

    assert set(forms) == {"spout", "bolt", "committer", "aggregate", "plan", "state"}
    every = [form for found in forms.values() for form in found]
    assert len(every) == len(set(every)) == len(forms)


def boxes(picture: ElementTree.Element) -> dict[str, tuple[float, float, float, float]]:
    """Return left, top, right and bottom of each component and state."""
    found = {}
    for group in picture.iter(f"{SVG}g"):
        name = group.get("data-component") or group.get("data-state")
        if name is None:
            continue
        shape = next(each for each in group if each.tag in (f"{SVG}rect", f"{SVG}path"))
        if shape.tag == f"{SVG}rect":
            x, y, w, h = (float(shape.attrib[each]) for each in ("x", "y", "width", "height"))
            found[f"{group.get('class')} {name}"] = (x, y, x + w, y + h)
        else:
            places = re.findall(r"[MHL](-?[\d.]+)(?: (-?[\d.]+))?", shape.attrib["d"])
            xs = [float(x) for x, _ in places]
            ys = [float(y) for _, y in places if y]
            found[f"{group.get('class')} {name}"] = (min(xs), min(ys), max(xs), max(ys))
    return found


@pytest.mark.parametrize("topology", [topologies.words, lambda: topologies.tangle(60)])
def test_boxes_do_not_overlap_and_are_inside_the_picture(
    topology: Callable[[], Topology],
) -> None:
    picture = parsed(topology().explain().svg())
    places = boxes(picture)

    for (one, a), (two, b) in itertools.combinations(places.items(), 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart, f"{one} and {two}"
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    for left, top, right, bottom in places.values():
        assert left >= 0
        assert top >= 0
        assert right <= width
        assert bottom <= height


def test_the_cut_is_between_the_phases() -> None:
    told = topologies.words().explain()
    picture = parsed(told.svg())
    (handover,) = [
        float(e.attrib["x1"]) for e in picture.iter(f"{SVG}line") if e.get("class") == "handover"
    ]
    texts = [each.text for each in picture.iter(f"{SVG}text")]

    assert "processing phase" in texts
    assert "commit phase" in texts
    phases = {each.component: each.phase for each in told.components}
    for name, (left, _, right, _) in boxes(picture).items():
        phase = phases.get(name.partition(" ")[2], "commit")
        assert right < handover if phase == "process" else left > handover, name


def test_a_topology_without_committers_has_no_cut() -> None:
    assert 'class="handover"' not in topologies.lines().explain().svg()


def test_edges_that_need_not_cross_do_not() -> None:
    columns: dict[Node, int] = {"a": 0, "b": 0, "c": 0, "z": 1, "y": 1, "x": 1}
    links = [Arc("a", "x", 0), Arc("b", "y", 0), Arc("c", "z", 0)]

    middle = placed(columns, dict.fromkeys(columns, 10.0), links).middle

    assert sorted("abc", key=middle.__getitem__) in (list("abc"), list("cba"))
    assert [middle[one] < middle[two] for one, two in ("ab", "bc")] == [
        middle[one] < middle[two] for one, two in ("xy", "yz")
    ]


def test_equal_topologies_have_equal_pictures() -> None:
    assert topologies.tangle(40).explain().svg() == topologies.tangle(40).explain().svg()


@pytest.mark.integration
@pytest.mark.parametrize("topology", [topologies.tangle, topologies.fan])
def test_a_thousand_components_are_drawn(topology: Callable[[int], Topology]) -> None:
    told = topology(1_000).explain()

    assert len(named(parsed(told.svg()), "data-component")) == len(told.components) > 1_000
    assert len(told.mermaid().splitlines()) > 2_000


def test_mermaid_has_labels_only_of_harmless_characters() -> None:
    told = topologies.chain(topologies.HOSTILE).explain()
    lines = told.mermaid().splitlines()

    node = re.compile(r' *[cs]\d+(\(\[|\[\[|\[\(|\[/|\[|\{\{)"([^"]*)"(\]\)|\]\]|\)\]|/\]|\]|\}\})')
    edge = re.compile(r' *c\d+ -->\|"([^"]*)"\| c\d+')
    other = re.compile(r'flowchart LR| *subgraph \w+ \["[a-z ]+"\]| *end| *c\d+ -\.-> s\d+')
    for line in lines:
        found = node.fullmatch(line) or edge.fullmatch(line)
        assert found or other.fullmatch(line), line
        if found:
            text = found[2] if found.re is node else found[1]
            assert re.fullmatch(r"[\w ,()/:=×]*", re.sub(r"#\d+;|<br/>", "", text)), line


def test_a_notebook_shows_a_topology_as_its_picture() -> None:
    for topology in (topologies.words(), topologies.lines()):
        shown = topology._repr_html_()
        assert shown.startswith("<div")
        assert "<svg" in shown
        assert "<script" not in shown


def test_the_picture_in_the_documentation_is_the_one_that_is_drawn() -> None:
    """Else: ``python -m tests.unit.explanation.picture``."""
    assert drawn() == PICTURE.read_text()
