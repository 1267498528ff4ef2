"""Build the sdist and the wheel: ``make release``, which puts them into ``dist/``.

They are built from a copy of what git tracks, and hold no trace of when, where and by whom: times
are those of the last commit, owners are nobody's, rights are the usual ones. So two builds of one
commit with the versions of ``constraints.txt`` are equal, byte by byte.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.harness.processes import ROOT

DIST = ROOT / "dist"


def build(folder: Path, source: Path = ROOT) -> tuple[Path, Path]:
    """Build the sdist of a clone, and the wheel from that; return their paths in *folder*."""
    epoch = int(git(source, "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory(prefix="txtopo-release-") as place:
        tree, built = Path(place, "source"), Path(place, "built")
        copy_tracked(source, tree)
        run(
            *(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(built), str(tree)),
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
        )
        folder.mkdir(parents=True, exist_ok=True)
        sdist, wheel = next(built.glob("*.tar.gz")), next(built.glob("*.whl"))
        repack(sdist, folder / sdist.name, epoch)
        shutil.copyfile(wheel, folder / wheel.name)
        return folder / sdist.name, folder / wheel.name


def copy_tracked(source: Path, target: Path) -> None:
    """Copy the files that git tracks, with the rights that everybody has."""
    for name in filter(None, git(source, "ls-files", "-z").split("\0")):
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, copy)
        copy.chmod(0o755 if os.access(source / name, os.X_OK) else 0o644)


def repack(sdist: Path, target: Path, epoch: int) -> None:
    """Write a sdist again, in the order of names, with one time and no owner."""
    with (
        tarfile.open(sdist) as old,
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", mtime=epoch, fileobj=raw) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            member.mtime, member.pax_headers = epoch, {}
            member.uid, member.gid, member.uname, member.gname = 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(member, old.extractfile(member) if member.isfile() else None)


def check(sdist: Path, wheel: Path) -> None:
    """Check what an index checks: the metadata, and that the wheel has what it should and no more.

    Raises:
        SystemExit: Something is wrong; it has been printed.
    """
    run(sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel))
    settings = ("--config", str(ROOT / "setup.cfg"))
    run(sys.executable, "-m", "check_wheel_contents", *settings, str(wheel))


def git(source: Path, *arguments: str) -> str:
    """Return what git says about a clone."""
    return run("git", "-C", str(source), *arguments)


def run(*command: str, env: dict[str, str] | None = None) -> str:
    """Run a command and return its output.

    Raises:
        SystemExit: It failed; the message has all that it printed.
    """
    done = subprocess.run(
        command,
        env=env,
        umask=0o022,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Build what is committed into ``dist/``, check it and print the sums."""
    if changed := git(ROOT, "status", "--porcelain", "--untracked-files=no"):
        raise SystemExit(f"release: not all is committed; commit or undo this first:\n{changed}")
    shutil.rmtree(DIST, ignore_errors=True)
    files = build(DIST)
    check(*files)
    for path in files:
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
