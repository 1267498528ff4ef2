"""How a client proves who it is, and who may then read its nodes."""

from __future__ import annotations

import importlib.util
import ipaddress
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from txtopo.errors import ConfigError
from txtopo.transactional_state.zookeeper.tls import complete, context_of, warn_if_unverified

_log = logging.getLogger("txtopo.transactional_state")


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials and TLS. With credentials, nodes belong to their creator alone.

    Topologies with different users therefore need chroots of their own.

    Attributes:
        digest: ``"user:password"``.
        sasl: kazoo's ``sasl_options``.
        tls: kazoo's TLS arguments. Certificates and host names are verified unless it says not to.
    """

    digest: str | None = field(default=None, repr=False)
    sasl: Mapping[str, str] | None = field(default=None, repr=False)
    tls: Mapping[str, str | bool] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.digest is not None and not all(self.digest.partition(":")):
            raise ConfigError("zookeeper_digest cannot be read; expected 'user:password'")
        if self.sasl is not None:
            _check_sasl(self.sasl)
        self.tls_context()

    @property
    def scheme(self) -> str:
        """What is named in errors: ``digest``, ``sasl`` or ``world``."""
        if self.digest is not None:
            return "digest"
        return "world" if self.sasl is None else "sasl"

    @property
    def acl(self) -> list[Any]:
        """Who may use the nodes that are created."""
        return list(OPEN_ACL_UNSAFE if self.scheme == "world" else CREATOR_ALL_ACL)

    def client_arguments(self) -> dict[str, Any]:
        """Return the arguments of kazoo's client."""
        arguments: dict[str, Any] = {"default_acl": self.acl}
        if self.digest is not None:
            arguments["auth_data"] = [("digest", self.digest)]
        if self.sasl is not None:
            arguments["sasl_options"] = dict(self.sasl)
        if self.tls is not None:
            arguments |= complete(self.tls)
        return arguments

    def tls_context(self) -> ssl.SSLContext | None:
        """Return what each connection is made with; None without TLS.

        Raises:
            ConfigError: A setting or a file cannot be used.
        """
        return None if self.tls is None else context_of(complete(self.tls))

    def warn_if_open(self, hosts: str) -> None:
        """Say it once when others may change the nodes, listen, or pass for the server."""
        if self.tls is not None:
            warn_if_unverified(complete(self.tls), hosts)
        if all(_is_loopback(host) for host in hosts.split(",")):
            return
        if self.scheme == "digest" and self.tls_context() is None:
            _log.warning(
                "zookeeper_digest travels to %s as it is, so that whoever listens has the "
                "password; set zookeeper_tls",
                hosts,
            )
        if self.scheme == "world":
            _log.warning(
                "anyone who reaches %s may change the transactional state there; "
                "set zookeeper_digest or zookeeper_sasl",
                hosts,
            )


def _check_sasl(options: Mapping[str, str]) -> None:
    if "mechanism" not in options:
        raise ConfigError(
            "zookeeper_sasl names no mechanism; expected for instance mechanism='DIGEST-MD5', "
            "username=…, password=…"
        )
    if importlib.util.find_spec("puresasl") is None:
        raise ConfigError("zookeeper_sasl needs the package pure-sasl; pip install 'txtopo[sasl]'")


def _is_loopback(host_port: str) -> bool:
    host = host_port.strip()
    if not host.startswith("[") and host.count(":") == 1:
        host = host.partition(":")[0]
    host = host.partition("]")[0].lstrip("[")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
