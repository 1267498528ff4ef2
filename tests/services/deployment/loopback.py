"""The services of docker/compose.yml on loopback, without Docker.

Each one runs the command and has the environment that compose.yml gives it, and is started in the
order of ``depends_on`` once its health check says so. Names of containers, their ports and folders
are replaced by addresses and folders of this machine.

What an image does with its environment is done by its own program where there is one (Kafka's is in
its jars), and else as its entry point does it: ZooKeeper's writes the file of settings, that of
PostgreSQL makes the user and the database.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial
from graphlib import TopologicalSorter
from pathlib import Path
from signal import Signals
from typing import Any, Self

from tests.harness import compose
from tests.harness.polling import wait_until
from tests.harness.servers.kafka import KafkaBroker
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.private import ServerProcess, free_port, run_program
from tests.harness.servers.zookeeper import ZooKeeperProcess

START_LIMIT_S = 600.0
"""The limit of a start: eight JVMs may start at once on two cores that others use as well."""
_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

Places = Mapping[str, str]
"""What stands here in the place of a text of compose.yml."""


def put(places: Places, text: str) -> str:
    """Replace all texts of containers in one pass, longer ones first."""
    found = "|".join(map(re.escape, sorted(places, key=len, reverse=True)))
    return re.sub(found, lambda match: places[match[0]], text) if places else text


class Container(ServerProcess):
    """What one service runs, with its command and its environment.

    Args:
        name: Its name.
        service: The service.
        places: What is elsewhere here.
        program: The entry point of its image.
        more: Variables of the environment that are needed here beside those of the service.
    """

    def __init__(
        self,
        name: str,
        service: Mapping[str, Any],
        places: Places,
        *program: str | Path,
        **more: str,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"txtopo-{name}-"))
        here = partial(put, {**places, "/work": str(self.folder)})
        entry = map(here, service["entrypoint"]) if service["entrypoint"] else program
        self._command = [*entry, *map(here, service["command"] or ())]
        own = {name: here(value) for name, value in (service.get("environment") or {}).items()}
        kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**kept, "PATH": path, **more, **own}
        kind, *check = map(here, service.get("healthcheck", {}).get("test") or ("NONE",))
        self._check = ["sh", "-c", *check] if kind == "CMD-SHELL" else check
        self.restarts = service.get("restart") == "unless-stopped"

    @property
    def pid(self) -> int | None:
        """Its process id; None if it was killed, or never started."""
        return self._process.pid if self._process else None

    def launch(self) -> None:
        """Start it, and do not wait."""
        self._process = self._open(
            self._command, cwd=self.folder, env=self._environment, start_new_session=True
        )

    def start(self) -> None:
        """Start it, and wait for what others wait for."""
        self.launch()
        self.wait()

    def wait(self) -> None:
        """Wait until its health check succeeds, or for its good end if nobody starts it again."""
        assert self._process is not None
        if not self.restarts:
            assert self._process.wait(START_LIMIT_S) == 0, self.log
        elif self._check:
            what = f"{self._check} succeeds"
            wait_until(self._is_healthy, lambda: f"{what}; {self.log}", START_LIMIT_S, 0.5)

    def signal(self, number: Signals) -> None:
        """Send a signal to all that it has started; a container ends as a whole."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _is_healthy(self) -> bool:
        assert self.runs, f"{self._command} has ended; {self.log}"
        done = subprocess.run(self._check, env=self._environment, capture_output=True, check=False)
        return done.returncode == 0


class ZooKeeperContainer(ZooKeeperProcess):
    """A server whose settings are those that the image makes of its environment."""

    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

    def __init__(self) -> None:
        super().__init__()
        self.ports = f"127.0.0.1:{free_port()}:{free_port()};127.0.0.1:{self.port}"

    def configure(self, environment: Mapping[str, str], places: Places) -> None:
        """Write settings and number, as the image's entry point does at its first start."""
        of = {"TICK_TIME": "2000", "INIT_LIMIT": "5", "SYNC_LIMIT": "2", "MAX_CLIENT_CNXNS": "60"}
        of |= {name.removeprefix("ZOO_"): value for name, value in environment.items()}
        servers = [put(places, server) for server in of["SERVERS"].split()]
        settings = (
            f"dataDir={self.folder / 'data'}\ndataLogDir={self.folder / 'datalog'}\n"
            f"tickTime={of['TICK_TIME']}\ninitLimit={of['INIT_LIMIT']}\n"
            f"syncLimit={of['SYNC_LIMIT']}\nmaxClientCnxns={of['MAX_CLIENT_CNXNS']}\n"
            "standaloneEnabled=true\nautopurge.snapRetainCount=3\n"
            f"autopurge.purgeInterval={of['AUTOPURGE_PURGEINTERVAL']}\n"
            f"admin.enableServer={of['ADMINSERVER_ENABLED']}\n"
            f"4lw.commands.whitelist={of['4LW_COMMANDS_WHITELIST']}\n"
        )
        (self.folder / "zoo.cfg").write_text("\n".join([settings, *servers]))
        (self.folder / "data").mkdir()
        (self.folder / "data" / "myid").write_text(of["MY_ID"])


class PostgresContainer(PostgresServer):
    """A server with the user and the database that the image makes of its environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.user, self.password = environment["POSTGRES_USER"], environment["POSTGRES_PASSWORD"]
        self._database: str | None = environment["POSTGRES_DB"]
        super().__init__()

    def launch(self) -> None:
        """Start the server; the first time, make the database."""
        self.start()
        if self._database is not None:
            self.create_database(self._database)
            self._database = None

    def wait(self) -> None:
        """Do nothing: it answers once it is launched."""

    def end(self) -> None:
        """End the server, if it runs."""
        with suppress(RuntimeError):
            super().end()


class KafkaContainer(KafkaBroker):
    """A broker whose settings the image's own program makes of its environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        super().__init__()

    def launch(self) -> None:
        """Start the broker; before each start, the image's entry point reads the environment."""
        self._read_environment()
        super().launch()

    def _configure(self, controller: str) -> Path:
        client = f":{compose.variables()['KAFKA_CLIENT_PORT']}"
        self._places = {
            f"PLAINTEXT://kafka{client}": f"PLAINTEXT://{self.servers}",
            f"PLAINTEXT://{client}": f"PLAINTEXT://{self.servers}",
            "CONTROLLER://:9093": f"CONTROLLER://{controller}",
            "kafka:9093": controller,
            "/var/lib/kafka/data": str(self.folder / "data"),
        }
        for name in ("defaults", "mounted", "settings"):
            (self.folder / name).mkdir()
        for name in ("server.properties", "log4j2.yaml", "tools-log4j2.yaml"):
            (self.folder / "defaults" / name).touch()
        return self.folder / "settings" / "server.properties"

    def _read_environment(self) -> None:
        arguments = ["setup"]
        for option, name in (("-D", "defaults"), ("-M", "mounted"), ("-F", "settings")):
            arguments += [option, str(self.folder / name)]
        environment = {name: put(self._places, text) for name, text in self._environment.items()}
        # The image has a cluster id of its own, the same for everyone.
        environment |= {"CLUSTER_ID": "5L6g3nShT-eMCtK--X86sw"}
        command = [*self._java, "kafka.docker.KafkaDockerWrapper", *arguments]
        try:
            run_program(command, self.folder, env=environment)
        except RuntimeError as error:
            if "already formatted" not in str(error):  # what the image's entry point accepts, too
                raise


Server = Container | ZooKeeperContainer | PostgresContainer | KafkaContainer

LEFT_OUT = ("prometheus", "grafana")
"""They only watch."""


class Loopback:
    """The services of compose.yml; a context manager that ends them.

    Attributes:
        servers: The services, by name.
        master: Address of the page of Spark's master.
        ended: Those that ended by themselves, and were started again.
    """

    def __init__(self) -> None:
        self._services = compose.services()
        self._ports = compose.variables()
        self._volumes = tempfile.TemporaryDirectory(prefix="txtopo-volumes-")
        self.master = f"127.0.0.1:{free_port()}"
        self.ended: list[str] = []
        of = {name: each.get("environment") or {} for name, each in self._services.items()}
        self.postgres = PostgresContainer(of["postgres"])
        self.kafka = KafkaContainer(of["kafka"])
        self.zookeepers = {
            name: ZooKeeperContainer() for name in of if name.startswith("zookeeper")
        }
        self._places = self._addresses()
        for name, zookeeper in self.zookeepers.items():
            zookeeper.configure(of[name], self._places)
        self.servers: dict[str, Server] = {"postgres": self.postgres, "kafka": self.kafka}
        self.servers |= self.zookeepers
        for name in set(of) - set(self.servers) - set(LEFT_OUT):
            self.servers[name] = self._container(name)

    def place_of(self, text: str) -> str:
        """Return what a text of compose.yml, such as a URL, is here."""
        return put(self._places, text)

    def environment_of(self, name: str) -> dict[str, str]:
        """Return the environment of a service, with the addresses of this machine."""
        given: Places = self._services[name]["environment"]
        return {variable: self.place_of(value) for variable, value in given.items()}

    def start(self, *but: str) -> None:
        """Start the services in the order of ``depends_on``, all but some that nothing needs."""
        needs = {name: self._services[name].get("depends_on") or () for name in self.servers}
        order = TopologicalSorter({name: set(of) for name, of in needs.items() if name not in but})
        order.prepare()
        while order.is_active():
            names = order.get_ready()
            for name in names:
                self.servers[name].launch()
            for name in names:
                self.servers[name].wait()
            order.done(*names)

    def keep(self) -> None:
        """Start again what has ended, as ``restart: unless-stopped`` does."""
        for name, server in self.servers.items():
            if isinstance(server, Container) and server.restarts and server.pid and not server.runs:
                self.ended.append(f"{name}: {server.log}")
                server.launch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with ExitStack() as stack:
            stack.callback(self._volumes.cleanup)
            for server in self.servers.values():
                stack.push(server)

    def _addresses(self) -> dict[str, str]:
        """Return where the services are; all of them see each other's."""
        client, spark = self._ports["ZOOKEEPER_CLIENT_PORT"], self._ports["SPARK_MASTER_PORT"]
        places = {
            f"kafka:{self._ports['KAFKA_CLIENT_PORT']}": self.kafka.servers,
            "@postgres/": f"@127.0.0.1:{self.postgres.port}/",
            f"s3:{self._ports['S3_PORT']}": f"127.0.0.1:{free_port()}",
            f"spark-master:{spark}": f"127.0.0.1:{free_port()}",
        }
        for name, zookeeper in self.zookeepers.items():
            places[f"{name}:{client}"] = zookeeper.hosts
            places[f"{name}:2888:3888;{client}"] = zookeeper.ports
        return places

    def _container(self, name: str) -> Container:
        service, port = self._services[name], self._ports
        s3 = self.place_of(f"s3:{port['S3_PORT']}")
        master, spark = self.place_of(f"spark-master:{port['SPARK_MASTER_PORT']}").split(":")
        own = {
            "s3": {f"127.0.0.1:{port['S3_PORT']}": s3, f":{port['S3_PORT']}": s3},
            "spark-master": {
                "spark-master": master,
                port["SPARK_MASTER_PORT"]: spark,
                f"127.0.0.1:{port['SPARK_UI_PORT']}": self.master,
                port["SPARK_UI_PORT"]: self.master.partition(":")[2],
            },
        }.get(name, {})
        if name.startswith("driver"):
            own = {port["UI_PORT"]: str(free_port()), "0.0.0.0": "127.0.0.1"}
        for volume in service.get("volumes", ()):
            folder = Path(self._volumes.name, volume["source"])
            folder.mkdir(exist_ok=True)
            own[volume["target"]] = str(folder)
        places = {**self._places, **own}
        if service["image"].startswith("versity/"):
            program = compose.find_s3()
            assert program is not None
            return Container(name, service, places, program)
        # As in the Dockerfile; and Spark takes workers with addresses of their own for machines.
        last = {"spark-worker-1": 2, "spark-worker-2": 3}.get(name, 1)
        return Container(
            name,
            service,
            places,
            PYTHONPATH=str(compose.DOCKER / "topologies"),
            PYTHONUNBUFFERED="1",
            JAVA_TOOL_OPTIONS=_JVM,
            SPARK_LOCAL_IP=f"127.0.0.{last}",
        )
