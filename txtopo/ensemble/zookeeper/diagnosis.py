"""why_unreachable: explains, host by host, why no session with ZooKeeper could be opened.

To a client these all look like a timeout: a host name that cannot be resolved, a port where nothing
listens, a web server, an ensemble without a quorum. The error tells them apart.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from txtopo.connecting import why_not

ANSWER_S = 5.0
"""Limit for connecting to a host, and again for its answer. A busy server is slow in the handshake.
All hosts are asked at the same time."""

_QUESTION = b"srvr\n"
"""The only four-letter word that ZooKeeper answers by default; other servers wait for a newline."""

_TLS_ALERT = b"\x15\x03"
"""First bytes of the answer of a TLS server; ZooKeeper closes the connection instead."""


def why_unreachable(hosts: Sequence[tuple[str, int]], tls: ssl.SSLContext | None) -> str:
    """Return the findings at each host, as text.

    Args:
        hosts: Host and port of each server.
        tls: The SSL context of the connections; None for plain text.
    """

    def found(address: tuple[str, int]) -> str:
        host, port = address
        return f"{host}:{port} {_found(host, int(port), tls)}"

    with ThreadPoolExecutor(max(1, len(hosts))) as pool:
        return "; ".join(pool.map(found, hosts))


def _found(host: str, port: int, tls: ssl.SSLContext | None) -> str:
    try:
        connection = socket.create_connection((host, port), ANSWER_S)
    except (OSError, ValueError) as error:
        return why_not(error)
    with connection:
        try:
            if tls is None:
                return _meaning(_answer(connection))
            with tls.wrap_socket(connection, server_hostname=host) as secure:
                return _meaning(_answer(secure))
        except ssl.SSLCertVerificationError as error:
            return (
                f"has a certificate that is not trusted ({error.verify_message}); check 'ca' in "
                "zookeeper.tls, and the names in the certificate"
            )
        except ssl.SSLError as error:
            return (
                f"does not accept the TLS connection ({error.reason}); is it the secure port, and "
                "does it require 'certfile' and 'keyfile'?"
            )
        except OSError as error:
            return f"listens, but does not answer like zookeeper ({error})"


def _answer(connection: socket.socket) -> bytes:
    connection.sendall(_QUESTION)
    return connection.recv(4096)


def _meaning(answer: bytes) -> str:
    if b"READ-ONLY" in answer or b"not currently serving requests" in answer:
        return "has no quorum: it is read-only or serves no clients; restart the other servers"
    if answer.startswith(b"Zookeeper version") or b"whitelist" in answer:
        return "is zookeeper, but opened no session in time"
    if not answer or answer.startswith(_TLS_ALERT):
        return "does not answer in plain text; does it use TLS? set zookeeper.tls"
    return f"is not zookeeper; it answers {answer[:40]!r}"
