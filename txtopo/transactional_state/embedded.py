"""The ZooKeeper server inside PySpark's jars, hosted by the Spark driver's JVM.

Several processes may name one directory. Whichever JVM holds the lock on it hosts the server and
writes its port into a file there; the others are clients, and host it themselves, on the same
directory and port, once the lock is free. The lock is taken by the JVM and not by Python, since a
JVM outlives a killed Python by half a second and a second server on one directory would start
without complaint.

Within one JVM all users of a directory share one server. What they share is kept in the JVM's
system properties. The lock file is opened once per JVM: POSIX drops a process's lock on a file as
soon as the process closes any handle to it.

What ZooKeeper has acknowledged is on disk, unless ``-Dzookeeper.forceSync=no`` is set: then a power
cut takes back that a txid is committed, or that an epoch was claimed, and nothing else would tell.
Here that is refused. A client cannot see it of another server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from txtopo.errors import ConfigError, CoordinatorUnavailable

HOST = "127.0.0.1"

TICK_MS = 500
"""Sessions last 2 to 20 ticks: 1 to 10 s, so that a dead coordinator is replaced in seconds."""

CLIENTS_MAX = 200
"""Connections from one address, which here is every connection."""

SNAPSHOTS_KEPT = 3
PURGE_INTERVAL_H = 1
START_WAITS_MAX = 200
START_WAIT_MS = 50

_REGISTRY = "txtopo.zookeeper.servers"
_TURN = "txtopo.zookeeper.turn"


class EmbeddedServer:
    """One user's hold on the server of a directory.

    Args:
        jvm: A py4j view of the driver's JVM: ``spark._jvm``.
        directory: Where the server keeps its data; relative to Python's working directory.

    Raises:
        ConfigError: There is no JVM, or the directory cannot be used.
    """

    def __init__(self, jvm: Any, directory: str | Path) -> None:
        if jvm is None:
            raise ConfigError(
                "zookeeper='embedded' needs the JVM of a classic Spark session; there is none "
                "(Spark Connect, or the carrier 'local'); give 'host:port' of a running "
                "ZooKeeper, or 'memory' if nothing has to survive the process"
            )
        self._jvm = jvm
        self._directory = Path(os.path.realpath(directory))
        self._attached = False

    def attach(self) -> str:
        """Host the server unless another process does, and return its ``host:port``.

        Raises:
            ConfigError: The directory cannot be used.
        """
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unusable(error) from error
        with self._turn() as servers:
            entry = servers.get(str(self._directory))
            if entry is None:
                entry = self._jvm.java.util.HashMap()
                servers.put(str(self._directory), entry)
                entry.put("users", 0)
            entry.put("users", entry.get("users") + 1)
        self._attached = True
        try:
            return self._served()
        except BaseException:
            self.close()
            raise

    def host_if_free(self) -> bool:
        """Host the server if no other process does; return whether this JVM hosts it.

        A standby calls it again and again while it has no connection.
        """
        with self._turn() as servers:
            entry = servers.get(str(self._directory))
            if entry is None:
                return False
            if entry.get("server") is None and self._lock(entry):
                try:
                    self._start(entry)
                except (Py4JJavaError, OSError) as error:
                    self._unlock(entry)
                    raise self._unusable(error) from error
            return entry.get("server") is not None

    def locate(self) -> str:
        """Host the server if no other process does, and return its ``host:port`` as of now."""
        try:
            self.host_if_free()
        except Py4JNetworkError as error:
            raise CoordinatorUnavailable(
                "the Spark driver's JVM, which hosts zookeeper, does not answer; "
                "see its log, and start the topology with a new session"
            ) from error
        return f"{HOST}:{self._recorded_port()}"

    def close(self) -> None:
        """Let go; the last user in this JVM stops the server. Harmless twice."""
        if not self._attached:
            return
        self._attached = False
        try:
            with self._turn() as servers:
                entry = servers.get(str(self._directory))
                entry.put("users", entry.get("users") - 1)
                if entry.get("users") == 0:
                    servers.remove(str(self._directory))
                    self._stop(entry)
        except Py4JNetworkError:
            return  # the JVM is gone, and the server with it

    def _served(self) -> str:
        for _ in range(START_WAITS_MAX):
            self.host_if_free()
            port = self._recorded_port()
            if port:
                return f"{HOST}:{port}"
            self._jvm.java.lang.Thread.sleep(START_WAIT_MS)
        raise ConfigError(
            f"zookeeper_dir {self._directory} is locked by a process that does not say its port; "
            "end that process, or name another directory"
        )

    @contextmanager
    def _turn(self) -> Iterator[Any]:
        """Yield the servers of this JVM, by directory, to one user at a time."""
        java = self._jvm.java
        shared = java.lang.System.getProperties()
        shared.putIfAbsent(_TURN, java.util.concurrent.Semaphore(1))
        shared.putIfAbsent(_REGISTRY, java.util.HashMap())
        turn = shared.get(_TURN)
        turn.acquire()
        try:
            yield shared.get(_REGISTRY)
        finally:
            turn.release()

    def _lock(self, entry: Any) -> bool:
        if entry.get("file") is None:
            path = str(self._directory / "lock")
            try:
                entry.put("file", self._jvm.java.io.RandomAccessFile(path, "rw"))
            except Py4JJavaError as error:
                raise self._unusable(error) from error
        return entry.get("file").getChannel().tryLock() is not None

    def _unlock(self, entry: Any) -> None:
        entry.get("file").close()
        entry.remove("file")

    def _start(self, entry: Any) -> None:
        if self._jvm.java.lang.System.getProperty("zookeeper.forceSync", "yes") == "no":
            raise ConfigError(
                "the embedded zookeeper would lose what it acknowledges when the power goes; got "
                "-Dzookeeper.forceSync=no in the driver's JVM; expected yes, or not set; look at "
                "spark.driver.extraJavaOptions",
                directory=str(self._directory),
            )
        self._quieten()
        zookeeper = self._jvm.org.apache.zookeeper.server
        data = self._jvm.java.io.File(str(self._directory / "data"))
        factory = self._listen(self._recorded_port())
        try:
            factory.startup(zookeeper.ZooKeeperServer(data, data, TICK_MS))
        except Py4JJavaError:
            factory.shutdown()
            raise
        purge = zookeeper.DatadirCleanupManager(data, data, SNAPSHOTS_KEPT, PURGE_INTERVAL_H)
        purge.start()
        entry.put("purge", purge)
        entry.put("server", factory)
        self._record_port(factory.getLocalPort())

    def _quieten(self) -> None:
        """Keep the traces out of Spark's log that the server writes when a client is killed."""
        log4j = self._jvm.org.apache.logging.log4j
        try:
            log4j.core.config.Configurator.setLevel("org.apache.zookeeper", log4j.Level.ERROR)
        except (Py4JError, TypeError):
            return  # this Spark logs in another way

    def _listen(self, port: int) -> Any:
        """Listen on the port that clients know; on another one if a stranger has taken it."""
        for candidate in (port, 0):
            factory = self._jvm.org.apache.zookeeper.server.NIOServerCnxnFactory()
            try:
                address = self._jvm.java.net.InetSocketAddress(HOST, candidate)
                factory.configure(address, CLIENTS_MAX)
            except Py4JJavaError as error:
                if candidate == 0 or "BindException" not in str(error.java_exception):
                    raise
                continue
            return factory
        raise AssertionError("port 0 either binds or raises")

    def _stop(self, entry: Any) -> None:
        """Stop the server before the lock is released, or two would write at once."""
        if entry.get("server") is not None:
            entry.get("purge").shutdown()
            server = entry.get("server").getZooKeeperServer()
            entry.get("server").shutdown()
            server.getTxnLogFactory().close()
        if entry.get("file") is not None:
            self._unlock(entry)

    def _recorded_port(self) -> int:
        try:
            return int((self._directory / "port").read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def _record_port(self, port: int) -> None:
        new = self._directory / "port.new"
        new.write_text(str(port))
        new.replace(self._directory / "port")

    def _unusable(self, error: Exception) -> ConfigError:
        cause = getattr(error, "java_exception", error)
        return ConfigError(
            f"zookeeper_dir {self._directory} cannot be used by the embedded server; got {cause}; "
            "name a directory that this user may write, or give 'host:port' of a running ZooKeeper",
            directory=str(self._directory),
        )
