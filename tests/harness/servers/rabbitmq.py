"""A private RabbitMQ server on free loopback ports, for the tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.harness.servers.private import PrivateServer, account, free_port

if TYPE_CHECKING:
    from pika import BlockingConnection

# Debian's wrapper on PATH changes to the account of its service; this is the program itself.
_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def find_server() -> str | None:
    """Return the path of the server on this machine, or None."""
    return str(_PROGRAM) if _PROGRAM.exists() else shutil.which("rabbitmq-server")


class RabbitServer(PrivateServer):
    """A server with a node name, a cookie, ports and a folder of its own.

    Also its port mapper (epmd) is its own, so that nothing is shared with a server of this machine
    and none is left behind.

    Attributes:
        port: Its port on 127.0.0.1; the same after :meth:`start` again.
        folder: Where its data is.
    """

    def __init__(self) -> None:
        found = find_server()
        if found is None:
            raise FileNotFoundError("no rabbitmq-server found; install it or run make services")
        self._program = found
        self.folder = Path(tempfile.mkdtemp(prefix="txtopo-rabbitmq-"))
        self.port = free_port()
        self._mapper_port = free_port()
        self._peers_port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        cookie = self.folder / ".erlang.cookie"
        cookie.write_text(os.urandom(16).hex())
        cookie.chmod(0o400)
        # Whoever may read log levels and limits may read them here: all of it is the tests' own.
        (self.folder / "rabbitmq.conf").write_text(
            "log.console = true\nlog.file = false\nvm_memory_high_watermark.absolute = 512MB\n"
            "disk_free_limit.absolute = 50MB\n"
        )
        (self.folder / "plugins").write_text("[].\n")
        self._user = account(["rabbitmq"], "RabbitMQ")
        if self._user is not None:
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)

    def url(self, user: str = "guest", password: str = "guest", port: int | None = None) -> str:
        """Return the URL of this server."""
        return f"amqp://{user}:{password}@127.0.0.1:{port or self.port}/%2F"

    def connect(self) -> BlockingConnection:
        """Return a connection of a test's own."""
        from pika import BlockingConnection, URLParameters

        return BlockingConnection(URLParameters(self.url()))

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._spawn(["epmd", "-port", str(self._mapper_port), "-address", "127.0.0.1"])
        self._spawn([self._program])
        self._wait_until_it_answers(self._processes[-1], self._answers)

    def kill(self) -> None:
        """Kill the server (SIGKILL), as a crash does."""
        for process in reversed(self._processes):
            # Its shell and its helpers are in a session of their own with it.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()

    def end(self) -> None:
        """End the server, however it stands."""
        self.kill()

    def _spawn(self, command: Sequence[str]) -> None:
        folder, local = str(self.folder), "{127,0,0,1}"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"txtopo-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._peers_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {local}",
            "RABBITMQ_MNESIA_BASE": f"{folder}/data",
            "RABBITMQ_LOG_BASE": f"{folder}/logs",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
        }
        user = self._user
        process = self._open(
            command,
            cwd=self.folder,
            env=environment,
            start_new_session=True,
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else [],
        )
        self._processes.append(process)

    def _answers(self) -> bool:
        from pika.exceptions import AMQPError

        try:
            self.connect().close()
        except (AMQPError, OSError):
            return False
        return True
