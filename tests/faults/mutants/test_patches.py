"""The planted bugs still fit the tree, so that they cannot rot."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.faults.mutants.patches import FOLDER, Hunk, Patch, PatchError, load_patches, read_patch
from tests.faults.mutants.report import PAGE, how_soon, seeds_of
from tests.faults.mutants.trial import ROOT, SIMULATOR

PATCHES = load_patches()
BUGS_MIN = 24
SUITES = ("tests", "txtopo/testing/conformance")


def test_each_patch_fits_the_tree_once_and_leaves_python() -> None:
    for patch in PATCHES:
        for path, text in patch.applied(ROOT).items():
            assert text != path.read_text(), patch.name
            ast.parse(text, patch.name)


def test_no_patch_breaks_the_checks_instead_of_the_protocol() -> None:
    """A bug in a checker would hide itself."""
    paths = {hunk.path for patch in PATCHES for hunk in patch.hunks}

    assert [path for path in paths if not path.startswith(("txtopo/", "state_backends/"))] == []
    assert [path for path in paths if path.startswith("txtopo/testing/")] == []


def test_a_patch_says_what_it_breaks_and_which_test_sees_it() -> None:
    """What the simulator does not run is for a test."""
    files = (path for top in SUITES for path in (ROOT / top).rglob("*.py"))
    defined = {name for path in files for name in re.findall(r"def (test_\w+)", path.read_text())}
    for patch in PATCHES:
        assert patch.rule.endswith("."), patch.name
        assert patch.simulated or SIMULATOR not in patch.test.split(), patch.name
        for test in set(patch.test.split()) - {SIMULATOR}:
            file, *names = test.partition("[")[0].split("::")
            assert (ROOT / file).is_file(), test
            assert set(names[-1:]) <= defined, test


def test_there_are_enough_of_them_and_no_two_are_the_same() -> None:
    assert len(PATCHES) >= BUGS_MIN
    assert len({patch.hunks for patch in PATCHES}) == len(PATCHES)


@pytest.mark.parametrize("text", ["", "a rule\na rule\n"])
def test_a_patch_that_fits_nowhere_or_twice_is_refused(tmp_path: Path, text: str) -> None:
    patch = Patch("bug", "A rule.", SIMULATOR, (Hunk("code.py", "a rule\n", "a bug\n"),))
    (tmp_path / "code.py").write_text(text)

    with pytest.raises(PatchError, match=f"{text.count('rule')} times"):
        patch.apply(tmp_path)

    assert (tmp_path / "code.py").read_text() == text


def test_a_file_that_is_no_patch_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "no.patch"

    path.write_text("# A rule.\n--- a/x\n")
    with pytest.raises(PatchError, match="must begin with"):
        read_patch(path)

    path.write_text("# A rule.\n# caught-by: simulator\n")
    with pytest.raises(PatchError, match="changes nothing"):
        read_patch(path)


def test_every_file_in_the_folder_is_a_patch_or_python() -> None:
    assert {path.suffix for path in FOLDER.iterdir() if path.is_file()} == {".patch", ".py"}


def test_the_page_has_a_row_for_each_patch_and_counts_them() -> None:
    page = PAGE.read_text()
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \| (.+?) \|$", page, re.MULTILINE)
    alone = sum(caught_by.startswith("simulator, seed ") for *_, caught_by in rows)

    assert [(name, rule) for name, rule, _ in rows] == [(each.name, each.rule) for each in PATCHES]
    assert f"{len(rows)} bugs planted, {len(rows)} caught, {alone} of them by the simulator" in page
    assert len(seeds_of(page)) == alone
    assert how_soon(seeds_of(page).values()) in page


def test_how_soon_bugs_are_found_counts_from_seed_0() -> None:
    assert how_soon([0, 0, 1, 4, 9, 9, 9, 9, 19, 99]) == (
        "It found them within 17 seeds on average: half of them within 10, nine tenths within 20, "
        "all within 100."
    )
