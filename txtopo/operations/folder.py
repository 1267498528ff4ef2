"""EmbeddedFolder: an embedded ensemble, found by its directory and without a Spark session.

The JVM that hosts the server has a lock on the directory. While somebody has it, the port is in the
directory. While nobody has it, this process starts a JVM with PySpark's jars, which takes the lock
and hosts the server until it is closed. A run that starts meanwhile becomes a client of that
server, and hosts the server itself afterwards, as every process with an embedded ensemble does.

The JVM ends with this process: it reads a pipe that is closed then. It only accepts commands from
holders of its secret. py4j is imported when it is needed, since every verb of an operator imports
this module.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from subprocess import TimeoutExpired
from threading import Lock
from typing import TYPE_CHECKING, Any

from txtopo.carriers.java import check_java
from txtopo.errors import ConfigError

if TYPE_CHECKING:
    from txtopo.ensemble.embedded import EmbeddedServer

END_TIMEOUT_S = 10.0
"""How long the JVM may take to end before it is killed. Acknowledged data is on disk."""


class EmbeddedFolder:
    """The server of a directory: that of a run, or its own while no run hosts one.

    Args:
        folder: Directory of the ensemble. Nothing is created if it is not one.

    Raises:
        ConfigError: It is not a directory of an embedded ensemble, or cannot be used.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(os.path.realpath(folder))
        self._lock = Lock()
        self._gateway: Any = None
        self._server: EmbeddedServer | None = None
        if not (self._folder / "data").is_dir():
            raise ConfigError(
                f"{self._folder} holds no embedded zookeeper; got "
                f"{'a folder without data' if self._folder.is_dir() else 'no such folder'}; "
                "expected the zookeeper.dir of a topology that has run",
                setting="zookeeper.dir",
                path=str(self._folder),
            )

    def locate(self) -> str:
        """Return the server's ``host:port``; host it if nobody does.

        Raises:
            ConfigError: The directory cannot be used, or there is no Java to host it with.
        """
        from txtopo.ensemble.embedded import HOST

        with self._lock:  # pages call it from several threads
            if self._server is None and self._is_free():
                self._host()
            if self._server is not None:
                return self._server.locate()
        try:
            return f"{HOST}:{int((self._folder / 'port').read_text())}"
        except (FileNotFoundError, ValueError):
            return f"{HOST}:0"  # its host has locked the directory but does not listen yet
        except OSError as error:
            raise self._unusable(error) from error

    def close(self) -> None:
        """Stop the server and the JVM, if they were started here. May be called twice."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            _end(gateway)

    def _is_free(self) -> bool:
        """Return whether nobody has the lock that a host takes."""
        try:
            with (self._folder / "lock").open("r+b") as lock:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return True
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._unusable(error) from error
        return True

    def _host(self) -> None:
        from txtopo.ensemble.embedded import EmbeddedServer

        if self._gateway is None:
            self._gateway = _launch()
        server = EmbeddedServer(self._gateway.jvm, self._folder)
        server.attach()
        self._server = server

    def _unusable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"{self._folder} cannot be used; got {error}; expected a folder that this user may "
            "write; call it as the user of the run",
            path=str(self._folder),
        )


def _launch() -> Any:
    """Start a JVM that has ZooKeeper and py4j, without Spark."""
    from py4j.java_gateway import JavaGateway

    check_java()
    home = os.environ.get("SPARK_HOME")
    if not home:
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.submodule_search_locations, "pyspark is a package"
        home = spec.submodule_search_locations[0]
    return JavaGateway.launch_gateway(
        classpath=str(Path(home, "jars", "*")),
        # It lives for seconds, which the second compiler is not worth. The environment may choose a
        # collector: a JVM with two does not start.
        javaopts=["-XX:TieredStopAtLevel=1"],
        die_on_exit=True,
        java_path=None,
        create_new_process_group=True,  # ^C is meant for the command; the pipe ends the JVM
        enable_auth=True,
    )


def _end(gateway: Any) -> None:
    from py4j.protocol import Py4JError

    process = gateway.java_process
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(END_TIMEOUT_S)
    except TimeoutExpired:
        process.kill()
