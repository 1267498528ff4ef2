"""silent_servers: tries each address of servers once, by a plain TCP connection.

That is a look-up of the name and a connect, for all addresses at the same time. Nothing is sent, so
it works for every protocol, with TLS and without. It raises nothing, and takes no longer than its
limit: a look-up that hangs is left behind on a thread that keeps no process alive.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable

from txtopo.clock import now
from txtopo.servers import Address, Server

LIMIT_S = 3.0
"""How long all addresses together are tried."""

_LATE = "does not answer"


def silent_servers(servers: Iterable[Server], limit_s: float = LIMIT_S) -> dict[Server, str]:
    """Return the servers of which no address answers, with what was found at each address.

    Args:
        servers: The servers. Each has an address.
        limit_s: How many seconds it may take.
    """
    servers = list(servers)
    addresses = dict.fromkeys(each for server in servers for each in server.addresses)
    found: dict[Address, str | None] = {}

    def look(address: Address) -> None:
        try:
            socket.create_connection(address, limit_s).close()
            found[address] = None
        except (OSError, ValueError) as error:  # UnicodeError, for a name that cannot be one
            found[address] = why_not(error)

    deadline_s = now() + limit_s
    looks = [
        threading.Thread(target=look, args=(each,), daemon=True)  # noqa: TID251 - before a run
        for each in addresses
    ]
    for each in looks:
        each.start()
    for each in looks:
        each.join(max(0.0, deadline_s - now()))
    outcomes = {address: found.get(address, _LATE) for address in addresses}
    return {
        server: "; ".join(f"{shown(each)} {outcomes[each]}" for each in server.addresses)
        for server in servers
        if all(outcomes[each] is not None for each in server.addresses)
    }


def shown(address: Address) -> str:
    """Return ``host:port``."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def why_not(error: OSError | ValueError) -> str:
    """Return why there is no connection, in words that follow an address."""
    if isinstance(error, socket.gaierror | ValueError):
        return "cannot be resolved"
    if isinstance(error, ConnectionRefusedError):
        return "refuses connections, nothing listens there"
    if isinstance(error, TimeoutError):
        return _LATE
    return f"cannot be connected to ({error})"
