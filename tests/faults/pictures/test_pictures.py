"""The pictures of docs/explanation are what the code makes, and can be read by everybody."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.faults.pictures.drawing import Picture
from tests.faults.pictures.gallery import DEMO, IMAGES, PICTURES, path_of
from tests.faults.pictures.phases import phases
from tests.faults.pictures.transcript import Cast
from txtopo.coordinator.protocol import Failed
from txtopo.coordinator.transactions import AFTER, Phase

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_the_code_makes(name: str) -> None:
    """A change of the coordinator's table, or of what the runtime does, changes pictures."""
    path = path_of(name)

    assert path.exists(), f"{path.name} is missing; run make pictures"
    assert path.read_text() == PICTURES[name](), f"{path.name} is of another code: make pictures"


def test_there_is_no_file_that_no_code_makes() -> None:
    assert {path.name for path in IMAGES.iterdir()} == {
        DEMO.name,
        *(path_of(name).name for name in PICTURES),
    }


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_words_for_those_who_do_not_see_it_and_fetches_nothing(name: str) -> None:
    text = path_of(name).read_text()
    root = ElementTree.fromstring(text)
    title, told = root.findtext(f"{SVG}title"), root.findtext(f"{SVG}desc")

    assert title
    assert told
    assert len(told) > len(title)
    assert root.get("color"), "currentColor would be black on a dark card"
    assert "prefers-color-scheme:dark" in text
    assert text.count("http") == text.count("http://www.w3.org/2000/svg")
    for forbidden in ("url(", "@import", "<script", "<image", "href"):
        assert forbidden not in text


def test_no_text_leaves_its_picture() -> None:
    """Widths are those of a usual font; a wider one has some room."""
    for name in PICTURES:
        root = ElementTree.fromstring(path_of(name).read_text())
        width, height = float(root.get("width", 0)), float(root.get("height", 0))
        for text in root.iter(f"{SVG}text"):
            words, size = text.text or "", float(text.get("font-size", 13))
            wide = len(words) * size * (0.62 if text.get("font-family") else 0.52)
            share = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.get("text-anchor", "start")]
            left = float(text.get("x", 0)) - share * wide
            assert left >= 0, f"{name}: {words}"
            assert left + wide <= width, f"{name}: {words}"
            assert 0 < float(text.get("y", 0)) < height, f"{name}: {words}"


def test_the_phases_are_drawn_from_the_table_alone() -> None:
    drawn = phases()

    for (phase, cause), target in AFTER.items():
        assert f">{phase.name}<" in drawn
        assert f">{target.name}<" in drawn
        assert cause.__name__ in drawn
    for move in AFTER:
        assert phases({each: to for each, to in AFTER.items() if each != move}) != drawn


def test_a_move_that_is_added_is_drawn() -> None:
    drawn = phases({**AFTER, (Phase.GONE, Failed): Phase.PLANNED})

    assert "GONE to PLANNED by Failed" in drawn
    assert drawn.count("<path") == phases().count("<path") + 2, "a line with its arrow"


def test_what_a_program_printed_is_kept_as_it_was(tmp_path: Path) -> None:
    cast = Cast("make demo", ((0.5, "seed 7"), (2.0, "  a │ <b> & c")))

    cast.write(tmp_path / "demo.cast")

    assert Cast.read(tmp_path / "demo.cast") == cast


def test_words_of_a_picture_are_escaped() -> None:
    picture = Picture("a < b", "a & b")
    picture.text(1, 1, "<script>")

    assert "<script>" not in picture.svg(10, 10)
    assert ElementTree.fromstring(picture.svg(10, 10)).findtext(f"{SVG}title") == "a < b"
