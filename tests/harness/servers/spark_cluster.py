"""A private Spark cluster: a master and two workers that Spark takes for two machines.

``local-cluster`` has all executors on one machine, where Spark never runs a task a second time
speculatively. These workers have loopback addresses of their own.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.servers.private import PrivateServer

HOSTS = ("127.0.0.2", "127.0.0.3")
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_SMALL = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class SparkCluster(PrivateServer):
    """A master and a worker of one core for each of two addresses; starts and stops them.

    Attributes:
        url: The master, for a session.
        folder: Logs and work of the executors.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="txtopo-spark-cluster-"))
        self.url = ""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all, and wait until the workers are known to the master."""
        self._launch(_MASTER, "--host", "127.0.0.1", "--port", "0")
        self.url = self._said(r"Starting Spark master at (spark://\S+)")
        for host in HOSTS:
            resources = ("--cores", "1", "--memory", "1g")
            work = ("--work-dir", str(self.folder / host))
            launched = self._launch(_WORKER, "--host", host, *resources, *work, self.url)
            self._workers[host] = launched
        for host in HOSTS:
            self._said(rf"Registering worker {host}")

    def lose(self, host: str) -> None:
        """Kill the worker of an address; its executor ends when it is gone."""
        self._workers[host].kill()

    def end(self) -> None:
        """Kill all; executors end when their worker is gone."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _launch(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        java = ("java", *_SMALL, "-cp", f"{home}/conf:{home}/jars/*")
        process = self._open(
            [*java, program, "--webui-port", "0", *arguments],
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"},
            cwd=self.folder,
        )
        self._processes.append(process)
        return process

    def _said(self, pattern: str) -> str:
        """Wait until the log says it, and return its last group, or all of it."""
        log = self.folder / "log"
        found = wait_until(
            lambda: re.search(pattern, log.read_text(errors="replace")),
            lambda: f"the log has {pattern!r}; it ends with {self.log}",
        )
        assert found is not None
        return found[found.re.groups]
