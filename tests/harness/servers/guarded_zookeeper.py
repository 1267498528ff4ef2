"""A ZooKeeper server with TLS and SASL, for the tests."""

from __future__ import annotations

from tests.harness.servers.certificates import Authority
from tests.harness.servers.private import free_port
from tests.harness.servers.zookeeper import ZooKeeperProcess

USERS = {"owner": "word-of-the-owner", "other": "word-of-the-other"}
"""The users who may log in by SASL, with their passwords."""

_JAAS = """Server {{
  org.apache.zookeeper.server.auth.DigestLoginModule required
{users};
}};
"""


class GuardedZooKeeper(ZooKeeperProcess):
    """A server with a plain port and a secure one; users log in with DIGEST-MD5 on both.

    Attributes:
        authority: Who signed its certificate.
        secure_hosts: ``127.0.0.1:port`` of the port with TLS.
    """

    def __init__(self, *, clients_certified: bool = False) -> None:
        super().__init__()
        self.authority = Authority(self.folder)
        secure = free_port()
        self.secure_hosts = f"127.0.0.1:{secure}"
        users = "\n".join(f'  user_{name}="{word}"' for name, word in USERS.items())
        (self.folder / "jaas.conf").write_text(_JAAS.format(users=users))
        self.options = (
            *ZooKeeperProcess.options,
            f"-Djava.security.auth.login.config={self.folder / 'jaas.conf'}",
            "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        )
        settings = {
            "secureClientPort": secure,
            "secureClientPortAddress": "127.0.0.1",
            "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "ssl.keyStore.location": self.authority.sign("server").both,
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": self.authority.file,
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "need" if clients_certified else "none",
        }
        with (self.folder / "zoo.cfg").open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())
