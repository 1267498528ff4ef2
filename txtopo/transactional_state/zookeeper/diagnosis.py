"""Diagnosis: why no first connection to ZooKeeper came about, host by host.

A client only notices that time goes by. A host that cannot be resolved, a port where nothing
listens, a web server and an ensemble without a quorum look alike to it, but not to a person.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

ANSWER_S = 1.0
"""How long one host may take; there are few of them, and the user waits already."""

_QUESTION = b"srvr\n"
"""ZooKeeper's four-letter word that is allowed by default; the newline is for others."""


def why_unreachable(hosts: Sequence[tuple[str, int]], *, tls: bool) -> str:
    """Return what each host does with a connection, as parts of a sentence."""
    return "; ".join(f"{host}:{port} {_found(host, int(port), tls=tls)}" for host, port in hosts)


def _found(host: str, port: int, *, tls: bool) -> str:
    try:
        connection = socket.create_connection((host, port), ANSWER_S)
    except (socket.gaierror, UnicodeError):
        return "cannot be resolved"
    except ConnectionRefusedError:
        return "refuses connections, nothing listens there"
    except OSError as error:
        return f"cannot be connected to ({error})"
    with connection:
        if tls:
            return "listens, but no session came about under these TLS settings"
        try:
            connection.sendall(_QUESTION)
            answer = connection.recv(4096)
        except OSError as error:
            return f"listens, but does not answer as zookeeper does ({error})"
    return _meaning(answer)


def _meaning(answer: bytes) -> str:
    if b"READ-ONLY" in answer or b"not currently serving requests" in answer:
        return "has no quorum: it is read-only or serves nobody; bring back the other servers"
    if answer.startswith(b"Zookeeper version") or b"whitelist" in answer:
        return "is zookeeper, but opened no session in time"
    return f"is not zookeeper; it answers {answer[:40]!r}"
