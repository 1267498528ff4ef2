"""Sockets that only this run's processes can use: ZeroMQ with CURVE keys made for the run.

The one place that knows how sockets are set up. See the package's text for what the keys guarantee.
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
    """The keys of one run: one pair for all who listen, one for all who connect."""

    server_public: bytes = field(repr=False)
    server_secret: bytes = field(repr=False)
    client_public: bytes = field(repr=False)
    client_secret: bytes = field(repr=False)

    @staticmethod
    def make() -> Keys:
        """Make keys.

        Raises:
            ConfigError: There is no ZeroMQ; install it.
        """
        check_zeromq()
        import zmq

        return Keys(*zmq.curve_keypair(), *zmq.curve_keypair())


def check_zeromq() -> None:
    """Check that this process can make the sockets of slots.

    Raises:
        ConfigError: There is no ZeroMQ; install it.
    """
    require("zmq", "carrier='resident'")
    import zmq

    if not zmq.has("curve"):
        raise ConfigError(
            "carrier 'resident' needs a ZeroMQ with CURVE; got one without; install the wheel "
            "of pyzmq from PyPI, which has it",
            setting="carrier",
        )


def has_zeromq() -> bool:
    """Return whether this process can make the sockets of slots."""
    try:
        check_zeromq()
    except ConfigError:
        return False
    return True


def listening(
    context: zmq.Context[zmq.Socket[bytes]], kind: int, keys: Keys, host: str
) -> tuple[zmq.Socket[bytes], int]:
    """Return a socket that listens at an address of this machine, and its port."""
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
    """Return a socket that is connected to a listener of this run, or will be."""
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
    """Return the address of this machine on the way to another; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        address: str = probe.getsockname()[0]
        return address


def _socket(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    made = context.socket(kind)
    made.linger = 0
    made.sndhwm = made.rcvhwm = 0
    return made
