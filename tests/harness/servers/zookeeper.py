"""A ZooKeeper server in a process of its own, from PySpark's jars, for the tests and benchmarks."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tests.harness.servers.private import ServerProcess, free_port

LONG_SESSION_S = 60.0
"""The longest session timeout of the server, for tests in which no session may expire."""

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


class ZooKeeperProcess(ServerProcess):
    """A standalone server on a loopback port; a context manager that starts and stops it.

    Attributes:
        port: The port that was given, or a free one.
        hosts: ``127.0.0.1:port``; the same after :meth:`start` again.
    """

    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    options: tuple[str, ...] = _JVM

    def __init__(self, *, tick_ms: int = 500, port: int | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="txtopo-zookeeper-"))
        self.port = port or free_port()
        self.hosts = f"127.0.0.1:{self.port}"
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
        self._process = self._open([*java, self.main, str(self.folder / "zoo.cfg")])

    def wait(self) -> None:
        """Wait until it serves.

        Raises:
            RuntimeError: It ended, or does not serve.
        """
        assert self._process is not None
        self._wait_until_it_answers(self._process, lambda: self.mode)

    @property
    def mode(self) -> str:
        """Its role: ``standalone``, ``leader`` or ``follower``; empty while it does not serve."""
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

    def freeze(self) -> None:
        """Stop the server's time, as a pause of its machine does."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue."""
        self.signal(signal.SIGCONT)


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
