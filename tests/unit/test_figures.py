"""Figures in pages are those of the files that make them, or of the code that they are about."""

from __future__ import annotations

import re

import pytest

from tests.faults.matrix.matrix import ROWS
from tests.unit.test_layout import ROOT
from txtopo import Config, __version__

DOCS = ROOT / "docs"
HOUR_MINUTES = 60
OF_A_QUERY = re.compile(r"^\| (q\d+) \| ([\d,]+) \| ([\d,]+) \|", re.MULTILINE)


def text_of(name: str) -> str:
    """Return a page on one line, so that a line break hides nothing."""
    return " ".join((ROOT / name).read_text().split())


def figure(name: str, pattern: str) -> str:
    """Return the figure that a page has once."""
    (found,) = set(re.findall(pattern, text_of(name)))
    return str(found)


def test_the_readme_tells_how_long_the_faults_lasted() -> None:
    minutes = float(figure("docs/reference/soak.md", r"\* ([\d.]+) minutes, seed"))
    hours = minutes / HOUR_MINUTES
    words = "hours" if hours >= 2 else "an hour" if hours >= 1 else f"{minutes:.0f} minutes"

    assert f"[{words} of faults](docs/reference/soak.md)" in text_of("README.md")


def test_the_changelog_counts_the_programs_of_the_page() -> None:
    programs = figure("docs/reference/simulation.md", r"\* ([\d,]+) programs, half of them")

    assert f"in plain Python; {programs} of them are in" in text_of("CHANGELOG.md")


def test_the_default_of_make_is_the_one_that_is_told() -> None:
    seeds = int(figure("Makefile", r"PROGRAMS := (\d+)"))

    assert f"simulate-streams`: {2 * seeds:,} random programs" in text_of("CONTRIBUTING.md")


@pytest.mark.parametrize(
    "page", ["ARCHITECTURE.md", "docs/explanation/exactly-once.md", "docs/reference/faults.md"]
)
def test_the_rows_of_the_fault_matrix_are_counted(page: str) -> None:
    told = re.findall(r"(\d+) rows(?: of the fault matrix|, each with its tests|;)", text_of(page))

    assert set(told) == {str(len(ROWS))}


def test_the_comparison_has_the_figures_that_were_measured() -> None:
    """Of small batches those of the table; of large ones those of the sentence below it."""
    compared = (DOCS / "explanation" / "comparison.md").read_text()
    small, large = compared.split("**With larger batches Structured Streaming is ahead")
    measured = (DOCS / "explanation" / "nexmark.md").read_text()
    rows = {query: (*figures,) for query, *figures in OF_A_QUERY.findall(measured)}
    ratios = dict(re.findall(r"^\| (q\d+) \|(?:[^|]*\|){3} ([\d.]+) \|", measured, re.MULTILINE))
    below = figure("docs/explanation/nexmark.md", r"three runs: (.+? events a second)\)")
    times, speeds = below.split("of its speed (")

    found = re.findall(r"^\| (q\d+),[^|]*\| ([\d,]+) \| ([\d,]+) \| ([\d.]+) \|", small, re.M)
    assert len(found) == 10
    for query, own, other, ratio in found:
        assert (own, other, ratio) == (*rows[query], ratios[query])
    found = re.findall(r"^\| (q\d+),[^|]*\| ([\d,]+) \| ([\d.]+) \|", large, re.MULTILINE)
    assert {query: ratio for query, _, ratio in found} == dict(
        re.findall(r"(q\d+) ([\d.]+)", times)
    )
    told = re.findall(r"\d+,\d+", speeds)
    in_order = [query for query, _ in re.findall(r"(q\d+) ([\d.]+)", times)]
    assert {query: speed for query, speed, _ in found} == dict(zip(in_order, told, strict=True))


def test_the_largest_group_is_that_of_the_settings() -> None:
    assert figure("docs/reference/limits.md", r"`group_txids_max`, (\d+) by default") == str(
        Config().group_txids_max
    )


def test_the_files_of_a_release_are_those_of_this_version() -> None:
    page = text_of("docs/how-to/installation.md")

    assert set(re.findall(r"txtopo-(\d[\d.]*\d)[-./]", page)) == {__version__}
