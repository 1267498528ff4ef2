"""What ``make release`` builds: the same bytes each time, complete, and enough to begin with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.harness.release import build, check, copy_tracked, git
from tests.unit.test_layout import PACKAGES, ROOT
from tests.unit.test_pages import environment, outputs_of, programs_of

pytestmark = [
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no clone, so nothing to build"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel."""
    return build(tmp_path_factory.mktemp("dist"))


@pytest.mark.slow
def test_two_builds_are_equal_byte_by_byte(
    built: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is that of another clone, elsewhere, of a user with other habits."""
    clone = tmp_path / "elsewhere"
    copy_tracked(ROOT, clone)
    (clone / "txtopo" / "not_tracked.py").touch()
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", ROOT, tmp_path / "git"], check=True)
    shutil.move(tmp_path / "git" / ".git", clone)
    git(clone, "add", *git(ROOT, "ls-files").splitlines())
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    before = os.umask(0o077)
    try:
        again = build(tmp_path / "dist", clone)
    finally:
        os.umask(before)

    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in built]


def test_an_index_takes_them(built: tuple[Path, Path]) -> None:
    check(*built)


def test_the_wheel_has_all_of_the_two_packages_and_nothing_else(built: tuple[Path, Path]) -> None:
    names = zipfile.ZipFile(built[1]).namelist()
    packed = {name for name in names if ".dist-info/" not in name}

    assert packed == {name for name in tracked() if name.split("/")[0] in PACKAGES}
    assert {"txtopo/py.typed", "state_backends/py.typed"} <= packed
    assert not [name for name in names if "/test_" in name or name.startswith("tests/")]


def test_the_sdist_is_the_repository(built: tuple[Path, Path]) -> None:
    """So the tests run from it, and nothing of a work tree gets into it."""
    with tarfile.open(built[0]) as sdist:
        names = {member.name.partition("/")[2] for member in sdist if member.isfile()}
    made = {name for name in names if name == "PKG-INFO" or name.startswith("txtopo.egg-info/")}

    assert names - made == tracked()


def test_the_examples_are_unpacked_from_the_sdist_as_the_page_says(
    built: tuple[Path, Path], installed: Path, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "how-to" / "installation.md").read_text()
    (command,) = re.findall(r"^tar xzf dist/(\S+) (.+)$", page, re.MULTILINE)
    assert command[0] == built[0].name

    subprocess.run(["tar", "xzf", built[0], *command[1].split()], cwd=tmp_path, check=True)

    examples = {name for name in tracked() if name.startswith("examples/")}
    unpacked = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert unpacked == examples
    program = "import runpy; runpy.run_path('examples/global_count.py')"  # main is not called
    subprocess.run(
        [installed / "python", "-c", program], cwd=tmp_path, env=own_environment(), check=True
    )


def tracked() -> set[str]:
    return set(git(ROOT, "ls-files").splitlines())


def test_the_wheel_says_what_it_is(built: tuple[Path, Path]) -> None:
    archive = zipfile.ZipFile(built[1])
    (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
    metadata = archive.read(name).decode()

    assert re.search(r"^License-Expression: Apache-2\.0$", metadata, re.MULTILINE)
    assert re.search(r"^License-File: LICENSE$", metadata, re.MULTILINE)
    assert re.search(r"^Requires-Python: >=3\.11$", metadata, re.MULTILINE)


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, and borrows what the wheel needs.

    test_installation.py lets pip fetch all of it, which takes minutes.
    """
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (own,) = folder.glob("lib/python*/site-packages")
    options = ("--quiet", "--no-deps", "--no-compile", "--no-index", "--disable-pip-version-check")
    python = ("--python", str(folder / "bin" / "python"))
    subprocess.run(
        [sys.executable, "-m", "pip", *python, "install", *options, str(built[1])], check=True
    )
    (own / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin"


def own_environment() -> dict[str, str]:
    """Return the environment of a user who has no checkout."""
    return {name: value for name, value in environment().items() if name != "PYTHONPATH"}


@pytest.mark.slow
@pytest.mark.spark
def test_the_wheel_and_the_first_program_of_the_readme_are_enough(
    installed: Path, tmp_path: Path
) -> None:
    readme = (ROOT / "README.md").read_text()
    program, *_ = programs_of(readme)
    where = "import txtopo, sys; sys.stderr.write(txtopo.__file__)\n"
    (tmp_path / "first.py").write_text(where + program.text)

    done = subprocess.run(
        [installed / "python", "first.py"],
        cwd=tmp_path,
        env=own_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == outputs_of(readme)[program.line], done.stderr[-2000:]
    assert str(installed.parent) in done.stderr, "another txtopo ran"


def test_the_wheel_brings_its_commands(installed: Path, tmp_path: Path) -> None:
    for command in (["txtopo", "--version"], ["txtopo", "list", "--help"]):
        program = [str(installed / command[0]), *command[1:]]
        done = subprocess.run(
            program, cwd=tmp_path, env=own_environment(), capture_output=True, text=True, check=True
        )
        assert done.stdout
    simulate = [str(installed / "txtopo-simulate"), "--seeds", "1"]
    subprocess.run(simulate, cwd=tmp_path, env=own_environment(), capture_output=True, check=True)
