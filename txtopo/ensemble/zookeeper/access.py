"""ZooKeeperAccess: credentials, ACLs and TLS of the connections to ZooKeeper.

kazoo reads the certificate files in its own thread whenever it connects. A missing file would look
like a server that never answers, and a certificate without a key is silently ignored. So an SSL
context is created here, once, from the same settings, and an error in them is raised at once.
:mod:`~txtopo.ensemble.zookeeper.diagnosis` uses it for a handshake when no session can be opened.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from txtopo.errors import ConfigError
from txtopo.extras import require
from txtopo.log_records import logger_of

_logger = logger_of("txtopo.ensemble")


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """Credentials and TLS settings.

    With credentials, only the user that created a node may use it. So topologies with different
    users need different chroots.

    Attributes:
        auth: ``"user:password"``, or kazoo's ``sasl_options``.
        tls: kazoo's TLS arguments. Certificates and host names are verified by default.
    """

    auth: str | Mapping[str, str] | None = field(default=None, repr=False)
    tls: Mapping[str, str | bool] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.auth, str):
            if not all(self.auth.partition(":")):
                raise ConfigError(
                    "zookeeper.auth cannot be read; expected 'user:password'",
                    setting="zookeeper.auth",
                )
        elif self.auth is not None:
            _check_sasl(self.auth)
        self.tls_context()

    @property
    def scheme(self) -> str:
        """The scheme of the credentials, ``digest`` or ``sasl``; ``world`` without credentials."""
        if self.auth is None:
            return "world"
        return "digest" if isinstance(self.auth, str) else "sasl"

    @property
    def acl(self) -> list[Any]:
        """The ACL of created nodes."""
        return list(OPEN_ACL_UNSAFE if self.scheme == "world" else CREATOR_ALL_ACL)

    def client_arguments(self) -> dict[str, Any]:
        """Return the arguments of kazoo's client that set the ACL, the credentials and TLS."""
        arguments: dict[str, Any] = {"default_acl": self.acl}
        if isinstance(self.auth, str):
            arguments["auth_data"] = [("digest", self.auth)]
        elif self.auth is not None:
            arguments["sasl_options"] = dict(self.auth)
        if self.tls is not None:
            arguments |= complete(self.tls)
        return arguments

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the SSL context of the connections; None without TLS.

        Raises:
            ConfigError: A setting or a file cannot be used.
        """
        return None if self.tls is None else context_of(complete(self.tls))

    def warn_if_open(self, hosts: str) -> None:
        """Log a warning if others could change nodes, read the password or imitate the server."""
        if self.tls is not None:
            warn_if_unverified(complete(self.tls), hosts)
        if all(_is_loopback(host) for host in hosts.split(",")):
            return
        if self.scheme == "digest" and self.tls_context() is None:
            _logger.warning(
                "zookeeper.auth is sent to %s in plain text, so others on the network can read "
                "the password; set zookeeper.tls",
                hosts,
            )
        if self.scheme == "world":
            _logger.warning(
                "anyone who can connect to %s may change the transactional state there; "
                "set zookeeper.auth",
                hosts,
            )


def _check_sasl(options: Mapping[str, str]) -> None:
    if "mechanism" not in options:
        raise ConfigError(
            "zookeeper.auth names no mechanism; expected for instance mechanism='DIGEST-MD5', "
            "username=…, password=…"
        )
    require("puresasl", "zookeeper.auth")


def _is_loopback(host_port: str) -> bool:
    host = host_port.strip()
    if not host.startswith("[") and host.count(":") == 1:
        host = host.partition(":")[0]
    host = host.partition("]")[0].lstrip("[")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


SETTINGS = frozenset(
    {"use_ssl", "ca", "certfile", "keyfile", "keyfile_password", "verify_certs", "check_hostname"}
)

_SWITCHES = ("use_ssl", "verify_certs", "check_hostname")


def complete(settings: Mapping[str, str | bool]) -> dict[str, str | bool]:
    """Return kazoo's arguments, which verify certificates and host names by default.

    Raises:
        ConfigError: A setting is unknown, of another type, or contradicts another one.
    """
    unknown = sorted(set(settings) - SETTINGS)
    if unknown:
        raise ConfigError(
            f"unknown setting {unknown[0]!r} in zookeeper.tls; expected some of "
            f"{', '.join(sorted(SETTINGS))}",
            setting="zookeeper.tls",
            got=unknown[0],
            expected=tuple(sorted(SETTINGS)),
        )
    for name, value in settings.items():
        if isinstance(value, bool) is not (name in _SWITCHES):
            expected = "True or False" if name in _SWITCHES else "a string"
            raise ConfigError(
                f"{name!r} in zookeeper.tls is of the wrong type; got {type(value).__name__}; "
                f"expected {expected}",
                setting="zookeeper.tls",
                name=name,
                got=type(value).__name__,
                expected=expected,
            )
    if ("certfile" in settings) is not ("keyfile" in settings):
        raise ConfigError(
            "zookeeper.tls has one of 'certfile' and 'keyfile'; expected both, or neither"
        )
    verify = settings.get("verify_certs", True)
    arguments = {"use_ssl": True, "verify_certs": verify, "check_hostname": verify, **settings}
    if arguments["check_hostname"] and not verify:
        raise ConfigError("zookeeper.tls has 'check_hostname', which needs 'verify_certs'")
    return arguments


def context_of(arguments: Mapping[str, str | bool]) -> ssl.SSLContext | None:
    """Return the SSL context that kazoo creates from these arguments; None without TLS.

    Raises:
        ConfigError: A file cannot be used.
    """
    if not arguments["use_ssl"]:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(arguments["check_hostname"])
    context.verify_mode = ssl.CERT_REQUIRED if arguments["verify_certs"] else ssl.CERT_NONE
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    files = {
        name: str(arguments[name]) for name in ("ca", "certfile", "keyfile") if name in arguments
    }
    try:
        if "ca" in files:
            context.load_verify_locations(files["ca"])
        if "certfile" in files:
            # Without a password OpenSSL would ask for one at the terminal.
            password = str(arguments.get("keyfile_password", ""))
            context.load_cert_chain(files["certfile"], files["keyfile"], password)
    except OSError as error:
        given = ", ".join(f"{name} {path!r}" for name, path in files.items())
        raise ConfigError(
            f"zookeeper.tls cannot be used: {error}; got {given}; expected readable PEM files, "
            "with the right keyfile_password",
            setting="zookeeper.tls",
            got=given,
        ) from error
    return context


def warn_if_unverified(arguments: Mapping[str, str | bool], hosts: str) -> None:
    """Log a warning if the certificates of the servers are not verified."""
    if arguments["use_ssl"] and not arguments["verify_certs"]:
        _logger.warning(
            "zookeeper.tls has verify_certs=False: a man in the middle could impersonate %s; set "
            "'ca' to the authority that signed its certificate instead",
            hosts,
        )
