"""EmbeddedServer: the ZooKeeper server in PySpark's jars, hosted by the Spark driver's JVM.

Several processes may use one directory. The JVM that holds the lock on it hosts the server and
writes its port into a file there. The other processes are clients. Each of them hosts the server
itself, on the same directory and port, once the lock is free. The JVM takes the lock and not
Python, because a JVM lives for half a second longer than a killed Python, and a second server on
one directory would start without an error.

Within one JVM all users of a directory share one server. They share it through the JVM's system
properties. The lock file is opened once per JVM: POSIX drops a process's lock on a file as soon as
the process closes any handle to that file.

What ZooKeeper has acknowledged is on disk, unless ``-Dzookeeper.forceSync=no`` is set. Then a power
failure could undo a committed txid or a claimed epoch, and nothing would notice. The embedded
server refuses to start with that setting. A client cannot see the setting of another server.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from txtopo.clock import now, sleep
from txtopo.errors import ConfigError, CoordinatorUnavailable
from txtopo.retries import warn_of_retry

HOST = "127.0.0.1"

TICK_MS = 500
"""A session lasts 2 to 20 ticks, so 1 to 10 s: a dead coordinator is replaced in seconds."""

CLIENTS_MAX = 200
"""Limit for one address. All connections come from the loopback address."""

SNAPSHOTS_KEPT = 3
PURGE_INTERVAL_S = 60.0
LOG_SETTINGS = {"zookeeper.snapSizeLimitInKb": "32768", "zookeeper.preAllocSize": "4096"}
"""A snapshot follows after at most 32 MiB of log. By default it is 4 GiB, or 100,000
transactions, and a transaction of a group of txids has 14 KiB. Preallocated space counts as well,
64 MiB by default."""
START_WAITS_MAX = 200
START_WAIT_S = 0.05

_DATA_FILE = re.compile(r"(?:snapshot|log)\.([0-9a-f]+)\b")

_SERVER = "org.apache.zookeeper.server"

_REGISTRY = "txtopo.zookeeper.servers"
_MUTEX = "txtopo.zookeeper.turn"


class EmbeddedServer:
    """One user of the server of a directory.

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
                "(Spark Connect, or the carrier 'local'); use 'host:port' of a running "
                "ZooKeeper, 'file:progress.db', or 'memory' if nothing has to survive the process"
            )
        self._jvm = jvm
        self._directory = Path(os.path.realpath(directory))
        self._attached = False
        self._purged_s = -math.inf

    def attach(self) -> str:
        """Start to use the server and return its ``host:port``; host it if nobody does.

        Raises:
            ConfigError: The directory cannot be used.
        """
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unusable(error) from error
        with self._servers() as servers:
            entry = servers.get(str(self._directory))
            if entry is None:
                entry = self._class("java.util.HashMap")()
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
        """Host the server if nobody does; return whether this JVM hosts it.

        A standby calls it repeatedly while it has no connection.
        """
        with self._servers() as servers:
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
        """Host the server if nobody does, and return its current ``host:port``."""
        try:
            self.host_if_free()
        except Py4JNetworkError as error:
            raise CoordinatorUnavailable(
                "the Spark driver's JVM, which hosts zookeeper, does not answer; "
                "see its log, and start the topology with a new session"
            ) from error
        return f"{HOST}:{self._recorded_port()}"

    def tidy(self) -> None:
        """Delete old files of the server, at most once a minute, if this JVM hosts it."""
        if now() - self._purged_s < PURGE_INTERVAL_S:
            return
        self._purged_s = now()
        try:
            # The first request for the leadership waits for this, and asking Java takes 10 ms.
            if sum(1 for _ in (self._directory / "data").glob("*/snapshot.*")) <= SNAPSHOTS_KEPT:
                return
            with self._servers() as servers:
                entry = servers.get(str(self._directory))
                if entry is not None and entry.get("server") is not None:
                    self._purge()
        except Py4JNetworkError:
            return  # the JVM is gone, and the server with it
        except (Py4JError, OSError) as error:
            what = f"to delete old files of the embedded zookeeper in {self._directory}"
            warn_of_retry(what, error, topology=None, failures=1, pause_s=PURGE_INTERVAL_S)

    def close(self) -> None:
        """Stop using the server; the last user in this JVM stops it. May be called twice."""
        if not self._attached:
            return
        self._attached = False
        try:
            with self._servers() as servers:
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
            sleep(START_WAIT_S)
        raise ConfigError(
            f"zookeeper.dir {self._directory} is locked by a process that wrote no port to it; "
            "end that process, or use another directory",
            path=str(self._directory),
        )

    @contextmanager
    def _servers(self) -> Iterator[Any]:
        """Yield the servers of this JVM by directory, to one user at a time."""
        shared = self._class("java.lang.System").getProperties()
        shared.putIfAbsent(_MUTEX, self._class("java.util.concurrent.Semaphore")(1))
        shared.putIfAbsent(_REGISTRY, self._class("java.util.HashMap")())
        mutex = shared.get(_MUTEX)
        mutex.acquire()
        try:
            yield shared.get(_REGISTRY)
        finally:
            mutex.release()

    def _class(self, name: str) -> Any:
        """Return a class of the JVM by its full name.

        With attributes (``jvm.java.util.HashMap``) the JVM would look up each part of the name, and
        search all jars for a class ``java`` and a class ``java.util``.
        """
        return JavaClass(name, self._jvm._gateway_client)

    def _lock(self, entry: Any) -> bool:
        if entry.get("file") is None:
            path = str(self._directory / "lock")
            try:
                entry.put("file", self._class("java.io.RandomAccessFile")(path, "rw"))
            except Py4JJavaError as error:
                raise self._unusable(error) from error
        return entry.get("file").getChannel().tryLock() is not None

    def _unlock(self, entry: Any) -> None:
        entry.get("file").close()
        entry.remove("file")

    def _start(self, entry: Any) -> None:
        if self._class("java.lang.System").getProperty("zookeeper.forceSync", "yes") == "no":
            raise ConfigError(
                "the embedded zookeeper could lose acknowledged writes in a power failure; got "
                "-Dzookeeper.forceSync=no in the driver's JVM; expected yes, or not set; check "
                "spark.driver.extraJavaOptions",
                path=str(self._directory),
            )
        properties = self._class("java.lang.System").getProperties()
        for name, value in LOG_SETTINGS.items():
            properties.putIfAbsent(name, value)
        self._quieten()
        data = self._class("java.io.File")(str(self._directory / "data"))
        factory = self._listen(self._recorded_port())
        try:
            factory.startup(self._class(f"{_SERVER}.ZooKeeperServer")(data, data, TICK_MS))
        except Py4JJavaError:
            factory.shutdown()
            raise
        entry.put("server", factory)
        self._record_port(factory.getLocalPort())

    def _quieten(self) -> None:
        """Silence the server's stack traces about killed clients in Spark's log."""
        log4j = "org.apache.logging.log4j"
        try:
            level = self._class(f"{log4j}.Level").ERROR
            configurator = self._class(f"{log4j}.core.config.Configurator")
            configurator.setLevel("org.apache.zookeeper", level)
        except (Py4JError, TypeError):
            return  # this Spark does not log with log4j 2

    def _listen(self, port: int) -> Any:
        """Listen on the port that clients know, or on a new one if another program has taken it."""
        for candidate in (port, 0):
            factory = self._class(f"{_SERVER}.NIOServerCnxnFactory")()
            try:
                address = self._class("java.net.InetSocketAddress")(HOST, candidate)
                factory.configure(address, CLIENTS_MAX)
            except Py4JJavaError as error:
                if candidate == 0 or "BindException" not in str(error.java_exception):
                    raise
                continue
            return factory
        raise AssertionError("port 0 either binds or raises")

    def _stop(self, entry: Any) -> None:
        """Stop the server, then release the lock; in the other order two servers could write."""
        if entry.get("server") is not None:
            server = entry.get("server").getZooKeeperServer()
            entry.get("server").shutdown()
            server.getTxnLogFactory().close()
        if entry.get("file") is not None:
            self._unlock(entry)

    def _purge(self) -> None:
        """Delete what the newest snapshots do not need.

        ZooKeeper's own ``PurgeTxnLog`` prints the name of each file to standard output, which
        belongs to the user. ZooKeeper still decides what is needed.
        """
        data = self._class("java.io.File")(str(self._directory / "data"))
        files = self._class(f"{_SERVER}.persistence.FileTxnSnapLog")(data, data)
        valid = files.findNValidSnapshots(SNAPSHOTS_KEPT)
        count = valid.size()
        if not count:
            return
        names = self._class(f"{_SERVER}.persistence.Util")
        # By number: at the end of an iteration Java raises, and PySpark takes 30 ms to ask why.
        oldest = int(names.getZxidFromName(valid.get(count - 1).getName(), "snapshot"))
        needed = {each.getName() for each in files.getSnapshotLogs(oldest)}
        for path in Path(files.getSnapDir().getPath()).iterdir():
            named = _DATA_FILE.match(path.name)
            if named and path.name not in needed and int(named[1], 16) < oldest:
                path.unlink(missing_ok=True)

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
        cause = error.java_exception if isinstance(error, Py4JJavaError) else error
        return ConfigError(
            f"zookeeper.dir {self._directory} cannot be used by the embedded server; got {cause}; "
            "use a directory that this user may write, or 'host:port' of a running ZooKeeper",
            path=str(self._directory),
        )
