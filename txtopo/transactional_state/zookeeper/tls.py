"""TLS: the settings of a connection to ZooKeeper, checked before anything connects.

kazoo reads the files of certificates each time that it connects, in a thread of its own: one that
is missing would look like a server that does not answer, for ever. A certificate without its key
it leaves out without a word. So a context is made once from the same settings, here; what cannot
make one is said at once, and :mod:`~txtopo.transactional_state.zookeeper.diagnosis` shakes hands
with it when no session comes about.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping

from txtopo.errors import ConfigError

SETTINGS = frozenset(
    {"use_ssl", "ca", "certfile", "keyfile", "keyfile_password", "verify_certs", "check_hostname"}
)
_SWITCHES = ("use_ssl", "verify_certs", "check_hostname")

_log = logging.getLogger("txtopo.transactional_state")


def complete(settings: Mapping[str, str | bool]) -> dict[str, str | bool]:
    """Return kazoo's arguments: certificates and host names are verified unless it says not to.

    Raises:
        ConfigError: A setting is unknown, of another type, or contradicts another one.
    """
    unknown = sorted(set(settings) - SETTINGS)
    if unknown:
        raise ConfigError(
            f"unknown setting {unknown[0]!r} in zookeeper_tls; expected some of "
            f"{', '.join(sorted(SETTINGS))}"
        )
    for name, value in settings.items():
        if isinstance(value, bool) is not (name in _SWITCHES):
            expected = "True or False" if name in _SWITCHES else "a string"
            raise ConfigError(
                f"{name!r} in zookeeper_tls is of the wrong type; got {type(value).__name__}; "
                f"expected {expected}"
            )
    if ("certfile" in settings) is not ("keyfile" in settings):
        raise ConfigError(
            "zookeeper_tls has one of 'certfile' and 'keyfile'; expected both, or neither"
        )
    verify = settings.get("verify_certs", True)
    arguments = {"use_ssl": True, "verify_certs": verify, "check_hostname": verify, **settings}
    if arguments["check_hostname"] and not verify:
        raise ConfigError("zookeeper_tls has 'check_hostname', which needs 'verify_certs'")
    return arguments


def context_of(arguments: Mapping[str, str | bool]) -> ssl.SSLContext | None:
    """Return what kazoo makes of the arguments for each connection; None without TLS.

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
        shown = ", ".join(f"{name} {path!r}" for name, path in files.items())
        raise ConfigError(
            f"zookeeper_tls cannot be used: {error}; got {shown}; expected files in PEM that can "
            "be read, with the right keyfile_password"
        ) from error
    return context


def warn_if_unverified(arguments: Mapping[str, str | bool], hosts: str) -> None:
    """Say it once when anyone may stand in for the servers."""
    if arguments["use_ssl"] and not arguments["verify_certs"]:
        _log.warning(
            "zookeeper_tls has verify_certs=False: whoever can come between may pass for %s; "
            "give the 'ca' that signed its certificate instead",
            hosts,
        )
