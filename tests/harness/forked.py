"""A Python that has imported what programs import, and forks a process for each program.

An interpreter that imports txtopo and PySpark computes for one to two seconds; a fork takes none.
The process is like that of ``python program.py`` in a folder: it has a ``__main__`` of its own, its
path begins with the folder, its traceback names the program, and it ends as Python does.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

ROOT = Path(__file__).parents[2]
IMPORTED = (
    *("txtopo", "txtopo.bolts", "txtopo.spouts", "txtopo.streams", "txtopo.testing"),
    *("pandas", "pyspark.sql"),
)
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "_RJEM_MALLOC_CONF": "background_thread:false",
}
"""A process that forks has no other threads: a child would have what they hold, and not them."""


class ForkedPython:
    """Runs programs, one at a time, each in a process of its own.

    Args:
        environment: That of the programs.
        limit_s: A program that takes longer is killed.
    """

    def __init__(self, environment: Mapping[str, str], limit_s: int) -> None:
        self._limit_s = limit_s
        self._server = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=ROOT,
            env={**environment, **ONE_THREAD},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a program of a folder there, with nothing to read."""
        assert self._server.stdin
        assert self._server.stdout
        with TemporaryDirectory() as outputs:
            asked = {"script": script, "folder": str(folder), "limit_s": self._limit_s}
            self._server.stdin.write(json.dumps({**asked, "outputs": outputs}) + "\n")
            self._server.stdin.flush()
            answer = self._server.stdout.readline()
            assert answer, f"the process that forks has ended: {self._server.wait()}"
            printed, logged = (Path(outputs, name).read_text() for name in ("1", "2"))
        return subprocess.CompletedProcess([script], int(answer), printed, logged)

    def close(self) -> None:
        """Let the process that forks end."""
        self._server.communicate()


def serve() -> None:
    """Fork for each request, and print the exit status of the child; return in the child."""
    for name in IMPORTED:
        importlib.import_module(name)
    assert_one_thread()
    gc.freeze()
    for request in sys.stdin:
        pid = os.fork()
        if pid == 0:
            return become(**json.loads(request))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return None


def assert_one_thread() -> None:
    """Fail if this process, which will fork, has threads. Only Linux lists them."""
    threads = len(os.listdir("/proc/self/task")) if Path("/proc/self/task").exists() else 1
    assert threads == 1, f"{threads} threads; expected one, since this process forks"


def become(script: str, folder: str, limit_s: int, outputs: str) -> None:
    """Run a program as the main one of this process."""
    signal.alarm(limit_s)
    os.chdir(folder)
    for number, name in enumerate((os.devnull, f"{outputs}/1", f"{outputs}/2")):
        file = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    for name in ONE_THREAD:
        del os.environ[name]
    path = str(Path(folder, script))
    main = ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"], sys.argv, sys.path[0] = main, [script], folder
    exec(compile(Path(path).read_text(), path, "exec"), main.__dict__)


if __name__ == "__main__":
    serve()
