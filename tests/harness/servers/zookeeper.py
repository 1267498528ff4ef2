"""A ZooKeeper server in a process of its own, from PySpark's jars, for the tests and benchmarks."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from tests.harness.servers.private import PrivateServer, free_port

STARTED_S_MAX = 120.0
ENDED_S_MAX = 120.0
LONG_SESSION_S = 60.0
"""What a test asks for in which no session is to expire, whoever gets no time of the machine: the
longest that the server grants."""

_JARS = (
    "commons-io",
    "log4j-api",
    "log4j-core",
    "log4j-slf4j2-impl",
    "metrics-core",
    "netty",
    "slf4j-api",
    "snappy-java",
    "zookeeper",
)
_JVM = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.admin.enableServer=false",
    "-Dlog4j2.level=ERROR",
)


class ZooKeeperProcess(PrivateServer):
    """A standalone server on a free loopback port; a context manager that starts and stops it.

    Attributes:
        hosts: ``127.0.0.1:port``; the same after :meth:`start` again.
    """

    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    options: tuple[str, ...] = _JVM

    def __init__(self, *, tick_ms: int = 500) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="txtopo-zookeeper-"))
        self.port = free_port()
        self.hosts = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        (self.folder / "zoo.cfg").write_text(
            f"dataDir={self.folder / 'data'}\nclientPort={self.port}\n"
            f"clientPortAddress=127.0.0.1\ntickTime={tick_ms}\nmaxClientCnxns=200\n"
            f"maxSessionTimeout={LONG_SESSION_S * 1000:.0f}\n"
        )

    def start(self) -> None:
        """Start the server and wait until it serves."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start the server, and do not wait."""
        java = [find_java(), *self.options, "-cp", _class_path()]
        command = [*java, self.main, str(self.folder / "zoo.cfg")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait(self) -> None:
        """Wait until it serves.

        Raises:
            RuntimeError: It ended, or does not serve.
        """
        assert self._process is not None
        deadline = time.monotonic() + STARTED_S_MAX
        while not self.mode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"ZooKeeper did not start: {(self.folder / 'log').read_text()}")
            time.sleep(0.05)

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def mode(self) -> str:
        """What it says it is: standalone, leader or follower; nothing while it does not serve."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                return connection.recv(4096).decode().partition("Mode: ")[2].partition("\n")[0]
        except OSError:
            return ""

    def files(self, kind: str) -> list[Path]:
        """Return its files of a kind, ``log`` or ``snapshot``, oldest first."""
        found = self.folder.glob(f"data/version-2/{kind}.*")
        return sorted(found, key=lambda file: int(file.suffix[1:], 16))

    def stop(self) -> None:
        """Stop the server in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server; what it has acknowledged is on disk."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop the server's time, as a pause of its machine does."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """End the server, however it stands."""
        self.kill()

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._signal(signal.SIGCONT)
            self._signal(number)
            self._process.wait(timeout=ENDED_S_MAX)
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


def find_java() -> str:
    """Return the Java of ``JAVA_HOME`` or ``PATH``."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if java is None:
        raise FileNotFoundError("no Java found in JAVA_HOME or PATH")
    return java


def _class_path() -> str:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("no PySpark found, whose jars hold ZooKeeper")
    jars = sorted((Path(spec.origin).parent / "jars").glob("*.jar"))
    return os.pathsep.join(str(jar) for jar in jars if jar.name.startswith(_JARS))
