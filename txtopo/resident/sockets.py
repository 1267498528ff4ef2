"""Sockets that only this run's processes can use: ZeroMQ with CURVE keys created for the run.

All sockets are set up here. The package docstring describes what the keys guarantee.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from txtopo.errors import ConfigError
from txtopo.extras import require

if TYPE_CHECKING:
    import zmq


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one run: one pair for all listeners, and one for all that connect."""

    server_public: bytes = field(repr=False)
    server_secret: bytes = field(repr=False)
    client_public: bytes = field(repr=False)
    client_secret: bytes = field(repr=False)

    @staticmethod
    def make() -> Keys:
        """Create keys.

        Raises:
            ConfigError: ZeroMQ is missing; install it.
        """
        check_zeromq()
        import zmq

        return Keys(*zmq.curve_keypair(), *zmq.curve_keypair())


def check_zeromq() -> None:
    """Check that this process can create the sockets of slots.

    Raises:
        ConfigError: ZeroMQ is missing; install it.
    """
    require("zmq", "carrier='resident'")
    import zmq

    if not zmq.has("curve"):
        raise ConfigError(
            "carrier 'resident' needs ZeroMQ with CURVE; got ZeroMQ without it; install the wheel "
            "of pyzmq from PyPI, which includes CURVE",
            setting="carrier",
        )


def has_zeromq() -> bool:
    """Return whether this process can create the sockets of slots."""
    try:
        check_zeromq()
    except ConfigError:
        return False
    return True


def listening(
    context: zmq.Context[zmq.Socket[bytes]], kind: int, keys: Keys, host: str
) -> tuple[zmq.Socket[bytes], int]:
    """Return a socket that listens on an address of this machine, and its port."""
    made = _socket(context, kind)
    made.curve_server = True
    made.curve_publickey = keys.server_public
    made.curve_secretkey = keys.server_secret
    # ZeroMQ binds to addresses, not to names.
    return made, made.bind_to_random_port(f"tcp://{socket.gethostbyname(host)}")


def connected(
    context: zmq.Context[zmq.Socket[bytes]],
    kind: int,
    keys: Keys,
    endpoint: str,
    identity: bytes | None = None,
) -> zmq.Socket[bytes]:
    """Return a socket that connects to a listener of this run in the background."""
    made = _socket(context, kind)
    made.curve_serverkey = keys.server_public
    made.curve_publickey = keys.client_public
    made.curve_secretkey = keys.client_secret
    if identity is not None:
        made.routing_id = identity
        # No reconnection: the task could not know what was lost in between. So a lost connection
        # ends a life, and the driver's next ping finds no peer.
        made.reconnect_ivl = -1
    made.connect(endpoint)
    return made


def address_towards(host: str) -> str:
    """Return the address of this machine on the route to another; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        address: str = probe.getsockname()[0]
        return address


def _socket(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    made = context.socket(kind)
    made.linger = 0
    made.sndhwm = made.rcvhwm = 0
    return made
