"""A private Spark Connect server, from PySpark's jars, and a process that is its client.

A process of PySpark is a client of Spark Connect or runs classic Spark, never both. The tests run
classic Spark, so what they ask of the server runs in a process of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from tests.harness.polling import LIMIT_S
from tests.harness.processes import ROOT
from tests.harness.servers.private import ServerProcess, free_port
from tests.harness.spark_session import SHORT_LIVED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2

_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"
_SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.log.level": "WARN",
    # Each batch shuffles little. On 2 cores, 200 partitions cost seconds.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.ui.enabled": "false",
}

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class SparkConnectServer(ServerProcess):
    """A server on a free loopback port, whose Python is that of the tests; it starts and stops it.

    Attributes:
        url: What clients connect to; the same after :meth:`start` again.
        port: Its port.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="txtopo-spark-connect-"))
        self.port = free_port()
        self.url = f"sc://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server and wait until it listens."""
        self.launch()
        assert self._process is not None
        self._wait_until_it_answers(self._process, self._listens)

    def launch(self) -> None:
        """Start the server, and do not wait."""
        import pyspark

        home = Path(pyspark.__file__).parent
        settings = {**_SETTINGS, "spark.connect.grpc.binding.port": str(self.port)}
        conf = [part for name in settings for part in ("--conf", f"{name}={settings[name]}")]
        # The script becomes the server's process.
        self._process = self._open(
            [home / "bin/spark-submit", "--master", f"local[{CORES}]", *conf, "--class", _MAIN],
            cwd=self.folder,
            env={
                **os.environ,
                "SPARK_HOME": str(home),
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": str(ROOT),
            },
        )

    def end(self) -> None:
        """Stop the server in order, so that its workers end with it."""
        self._end(signal.SIGTERM)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


class ConnectClient:
    """A process that calls functions, one after the other; a context manager that ends it."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def call(
        self,
        function: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Call a function of a module there, and return its result or raise its exception."""
        return self._pool.submit(function, *args, **kwargs).result(LIMIT_S)

    def __enter__(self) -> ConnectClient:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)


_shared: dict[str, SparkSession] = {}


@contextmanager
def shared(url: str) -> Iterator[SparkSession]:
    """Return the session of this client on a server; its workers serve one test after the other."""
    from pyspark.sql import SparkSession

    session = _shared.get(url)
    if session is None or session.is_stopped:  # type: ignore[attr-defined]  # of Connect
        session = _shared[url] = SparkSession.builder.remote(url).create()
    yield session


@contextmanager
def connected(url: str) -> Iterator[SparkSession]:
    """Open a session of its own on a server, in the process of a client; stop it at the end."""
    from pyspark.sql import SparkSession

    session: SparkSession = SparkSession.builder.remote(url).create()
    try:
        yield session
    finally:
        session.stop()
