"""Run tests in a copy of the tree, with a time limit, and leave no process behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults.mutants.trial import ROOT, TREE, copy_tree
from tests.faults.power.hits import NOW, NUMBER_BYTES
from tests.faults.power.meter import MARK, has_mark
from tests.faults.power.plugin import CHOSEN, CORE

ENDED = "ended.txt"
"""The file with what pytest has printed."""


@contextmanager
def copied_tree(name: str) -> Iterator[Path]:
    """Lend a copy of all that git tracks, since tests of pages need the pages, and a ``.venv``."""
    with TemporaryDirectory(prefix=f"{name}-") as folder:
        copy = Path(folder)
        copy_tree(copy)
        listed = ["git", "ls-files", "-z"]
        tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
        for path in tracked.stdout.split("\0"):
            if path.partition("/")[0] not in TREE and (ROOT / path).is_file():
                (copy / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, copy / path)
        if (ROOT / ".venv").exists():
            (copy / ".venv").symlink_to((ROOT / ".venv").resolve())
        yield copy


def run_tests(
    copy: Path,
    folder: Path,
    arguments: Sequence[str],
    chosen: Iterable[str] = (),
    core: int | None = None,
    limit_s: float | None = None,
) -> int | None:
    """Run tests in a copy; return pytest's exit status, or None if it took too long.

    Args:
        copy: The tree.
        folder: Where the plug-in writes.
        arguments: Of pytest.
        chosen: The ids of the tests; all if there is none.
        core: The core to stay on.
        limit_s: When to kill it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NOW).write_bytes(bytes(NUMBER_BYTES))
    ids = list(chosen)
    if ids:
        (folder / CHOSEN).write_text("\n".join(ids))
    files = sorted({each.partition("::")[0] for each in ids})
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "tests.faults.power.plugin", *arguments, *files]
    mark = {MARK: str(folder), CORE: "" if core is None else str(core)}
    environment = {**os.environ, **mark, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    with (folder / ENDED).open("w") as out:
        process = subprocess.Popen(
            command, cwd=copy, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            kill_marked(folder)
            process.wait()


def kill_marked(folder: Path) -> None:
    """Kill the processes of a run, also those with a session of their own."""
    mark = f"{MARK}={folder}".encode()
    for process in (each for each in Path("/proc").iterdir() if each.name.isdigit()):
        with suppress(OSError):
            if has_mark(process, mark):
                os.kill(int(process.name), signal.SIGKILL)
