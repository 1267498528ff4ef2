"""An archive for executors that have nothing, made by venv-pack as installation.md says."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import distribution
from pathlib import Path

from tests.harness.processes import ROOT
from tests.harness.release import build

NAME = "environment"
BORROWED = (
    *("click", "kazoo", "numpy", "pandas", "py4j", "pyarrow", "pyspark"),
    *("python-dateutil", "pytz", "sqlalchemy", "typing_extensions", "tzdata"),
    *("confluent-kafka", "pyzmq"),
)
"""What ``pip install 'txtopo[kafka,resident]'`` brings to executors."""
JARS = "*/pyspark/jars/*"
"""Spark itself is on the executors already."""


class Archive:
    """An environment with the wheel, packed when it is asked for.

    What the wheel needs is copied from this environment, since fetching it takes minutes.

    Args:
        folder: Where it is made.

    Attributes:
        python: The Python of executors that have unpacked it.
    """

    python = f"./{NAME}/bin/python"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def packed(self) -> Path:
        """Return the archive."""
        archive = self._folder / f"{NAME}.tar.gz"
        if not archive.exists():
            self._folder.mkdir()
            environment = self._folder / "venv"
            self._make(environment)
            pack = (str(environment / "bin" / "venv-pack"), "--prefix", str(environment), "--quiet")
            run(*pack, "--output", str(archive), "--exclude", JARS)
        return archive

    def settings(self) -> dict[str, str]:
        """Return the settings that ship it, and the examples, which no wheel has."""
        code = self._folder.with_name("examples.zip")
        with zipfile.ZipFile(code, "w") as packed:
            for path in (ROOT / "examples").glob("*.py"):
                packed.write(path, path.relative_to(ROOT))
        return {
            "spark.archives": f"{self.packed()}#{NAME}",
            "spark.submit.pyFiles": str(code),
        }

    def _make(self, folder: Path) -> None:
        run(sys.executable, "-m", "venv", "--without-pip", str(folder))
        wheel = build(self._folder / "wheel")[1]
        pip = (sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"))
        install = ("install", "--quiet", "--disable-pip-version-check", "--no-deps")
        run(*pip, *install, str(wheel), "venv-pack")
        (packages,) = folder.glob("lib/python*/site-packages")
        here = Path(sysconfig.get_path("purelib"))
        for name in BORROWED:
            for path in distribution(name).files or ():
                if path.parts[0] != ".." and "jars" not in path.parts:
                    target = packages / path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(here / path, target)


def run(*command: str) -> None:
    """Run a program to its good end."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
