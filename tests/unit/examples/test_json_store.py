"""The example of a plug-in, as a user has it: installed into an environment, with its own tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.harness.servers.forgetful_disk import ForgetfulDisk

pytestmark = pytest.mark.integration
SOURCE = Path(__file__).parents[3] / "examples" / "json_store"
COUNTS = "apple: 2\nbanana: 1\ncat: 8\nchicken: 1\ndog: 7\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that sees the packages of this one, with the example installed into it."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    packages = next(folder.glob("lib*/python*/site-packages"))
    ours = sysconfig.get_path("purelib")
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    # A build leaves files beside the sources.
    source = shutil.copytree(
        SOURCE, folder / "source", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    python = str(folder / "bin" / "python")
    options = ["--quiet", "--no-deps", "--no-build-isolation"]
    if find_spec("pip"):
        pip = [sys.executable, "-m", "pip", "--python", python, "--no-input"]
        ran([*pip, "install", "--no-index", *options, str(source)], folder)
    else:
        ran(
            ["uv", "pip", "install", "--offline", "--python", python, *options, str(source)], folder
        )
    return folder


def ran(command: list[str], folder: Path) -> str:
    """Run a command outside of the repository, and return what it printed."""
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TXTOPO_LONG": "0"},
    )
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-5_000:]
    return done.stdout


def test_what_it_has_written_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the first file, in folders that were made for it; authors of stores copy this."""
    monkeypatch.syspath_prepend(str(SOURCE))
    from json_store import whole_file

    (tmp_path / "disk").mkdir()
    disk = ForgetfulDisk(tmp_path / "disk", monkeypatch)
    folder = tmp_path / "disk" / "states" / "here"
    for text in ("1", "2"):
        whole_file.write(folder, {"counts": text})
        disk.cut_the_power()

        assert whole_file.read(folder / "counts") == text


@pytest.mark.parametrize("scheme", ["json", "json-map"])
def test_a_topology_counts_into_an_installed_plug_in(
    environment: Path, tmp_path: Path, scheme: str
) -> None:
    python = str(environment / "bin" / "python")
    command = [python, "-m", "json_store.word_count", f"{scheme}:{tmp_path / 'counts'}"]

    for _ in range(2):
        assert ran(command, tmp_path) == COUNTS
    assert list((tmp_path / "counts").glob("*.json"))


@pytest.mark.slow
def test_the_tests_of_the_plug_in_pass(environment: Path) -> None:
    python = str(environment / "bin" / "python")
    tests = str(environment / "source" / "tests")
    summary = ran([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests], environment)

    assert " passed" in summary
    assert "failed" not in summary
    assert "TestStateFile: about " in summary, "it says at its start how long it takes"
    assert "TestTextFolder: about " in summary
