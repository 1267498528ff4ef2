"""How a client proves who it is, and who may then read its nodes."""

from __future__ import annotations

import importlib.util
import ipaddress
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from txtopo.errors import ConfigError

TLS_SETTINGS = frozenset(
    {"use_ssl", "ca", "certfile", "keyfile", "keyfile_password", "verify_certs", "check_hostname"}
)

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

    digest: str | None = None
    sasl: Mapping[str, str] | None = None
    tls: Mapping[str, str | bool] | None = None

    def __post_init__(self) -> None:
        if self.digest is not None and not all(self.digest.partition(":")):
            raise ConfigError("zookeeper_digest cannot be read; expected 'user:password'")
        if self.sasl is not None:
            _check_sasl(self.sasl)
        unknown = sorted(set(self.tls or ()) - TLS_SETTINGS)
        if unknown:
            raise ConfigError(
                f"unknown setting {unknown[0]!r} in zookeeper_tls; expected some of "
                f"{', '.join(sorted(TLS_SETTINGS))}"
            )

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
            verify = self.tls.get("verify_certs", True)
            arguments |= {"use_ssl": True, "check_hostname": verify, **self.tls}
        return arguments

    def warn_if_open(self, hosts: str) -> None:
        """Say it once when anyone who reaches the hosts may change the nodes."""
        if self.scheme == "world" and not all(_is_loopback(host) for host in hosts.split(",")):
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
        raise ConfigError("zookeeper_sasl needs the package pure-sasl; pip install pure-sasl")


def _is_loopback(host_port: str) -> bool:
    host = host_port.strip()
    if not host.startswith("[") and host.count(":") == 1:
        host = host.partition(":")[0]
    host = host.partition("]")[0].lstrip("[")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
