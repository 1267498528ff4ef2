"""A private Spark cluster: a master, and workers that Spark takes for machines.

``local-cluster`` has all executors on one machine, where Spark never runs a task a second time
speculatively. These workers have loopback addresses of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL, Signals
from typing import Any

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.servers.private import PrivateServer, free_port

HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
START_LIMIT_S = 600.0
"""The limit of a start: several JVMs may start at once on two cores that others use as well."""
_SMALL = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class SparkCluster(PrivateServer):
    """A master with a recovery directory, and workers of one core each; starts and stops them.

    Args:
        workers: How many there are, three at most.

    Attributes:
        url: The master, for a session; the same after it was killed and started again.
        hosts: The addresses of the workers.
        folder: Logs and work of the executors.
    """

    def __init__(self, workers: int = 2) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="txtopo-spark-cluster-"))
        self.hosts = HOSTS[:workers]
        self._port, self._page_port = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{self._port}"
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all, and wait until the workers are known to the master."""
        try:
            self.start_master()
            for host in self.hosts:
                self._launch_worker(host)
            self._until(lambda: self._alive() == set(self.hosts), "all workers live")
        except BaseException:
            self.end()
            raise

    def start_master(self) -> None:
        """Start the master, and wait until it leads; what it wrote down before, it reads again."""
        recovery = ("FILESYSTEM", self.folder / "recovery")
        mode, directory = (
            f"-Dspark.deploy.recovery{name}={value}"
            for name, value in zip(("Mode", "Directory"), recovery, strict=True)
        )
        address = ("--host", "127.0.0.1", "--port", str(self._port))
        page = ("--webui-port", str(self._page_port))
        self._master = self._launch("127.0.0.1", (mode, directory), _MASTER, *address, *page)
        self._until(lambda: self.status().get("status") == "ALIVE", "the master leads")

    def kill_master(self) -> None:
        """Kill the master; workers and executors continue without it."""
        assert self._master is not None
        self._master.kill()
        self._master.wait(LIMIT_S)

    def start_worker(self, host: str) -> None:
        """Start a worker again, and wait until the master knows it."""
        self._launch_worker(host)
        self._until(lambda: host in self._alive(), f"a worker lives at {host}")

    def kill_worker(self, host: str) -> None:
        """Kill the worker of an address; its executor ends when it is gone."""
        self._workers[host].kill()
        self._workers[host].wait(LIMIT_S)

    def pythons(self, host: str) -> list[int]:
        """Return the processes of PySpark's daemon and its workers in a worker's executors."""
        return [pid for pid, name in self._processes_of(host) if "python" in name]

    def signal_pythons(self, host: str, number: Signals) -> None:
        """Send a signal to the Python processes of a worker's executors."""
        for pid in self.pythons(host):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def status(self) -> dict[str, Any]:
        """Return what the master says of all that it knows; empty if it is away."""
        page = f"http://127.0.0.1:{self._page_port}/json/"
        try:
            with urllib.request.urlopen(page, timeout=LIMIT_S) as answer:
                status: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):  # of a page that has no text yet
            return {}
        return status

    def cores(self) -> int:
        """Return how many cores the master says that applications have."""
        return sum(app["cores"] for app in self.status().get("activeapps", ()))

    def end(self) -> None:
        """Kill all; executors end when their worker is gone."""
        processes = [*self._workers.values(), *([self._master] if self._master else [])]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for host in self.hosts:  # what was frozen does not notice
            for pid, _ in self._processes_of(host):
                try:
                    os.kill(pid, SIGKILL)
                except ProcessLookupError:
                    continue

    def _alive(self) -> set[str]:
        return {
            each["host"] for each in self.status().get("workers", ()) if each["state"] == "ALIVE"
        }

    def _processes_of(self, host: str) -> Iterator[tuple[int, str]]:
        """Yield each process of a worker's executors, with the name of its program."""
        for path in Path("/proc").glob("[0-9]*"):
            try:
                place = Path(os.readlink(path / "cwd"))
                program = Path(os.readlink(path / "exe")).name
            except OSError:
                continue
            if place.is_relative_to(self.folder / host):
                yield int(path.name), program

    def _launch_worker(self, host: str) -> None:
        resources = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
        work = ("--work-dir", str(self.folder / host))
        arguments = ("--host", host, *resources, *work, self.url)
        self._workers[host] = self._launch(host, (), _WORKER, *arguments)

    def _launch(
        self, host: str, options: tuple[str, ...], *program: str
    ) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        java = ("java", *_SMALL, *options, "-cp", f"{home}/conf:{home}/jars/*")
        # Executors have this environment, and import only what is shipped to them.
        without_path = {name: of for name, of in os.environ.items() if name != "PYTHONPATH"}
        # Pages listen at all addresses, unless they are told one.
        own = {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": host}
        return self._open(
            [*java, *program],
            env={**without_path, **own},
            cwd=self.folder,
        )

    def _until(self, condition: Any, what: str) -> None:
        wait_until(condition, lambda: f"{what}; {self.status()}; {self.log}", START_LIMIT_S, 0.1)
