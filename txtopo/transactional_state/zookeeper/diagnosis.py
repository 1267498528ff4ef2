"""Diagnosis: why no first connection to ZooKeeper came about, host by host.

A client only notices that time goes by. A host that cannot be resolved, a port where nothing
listens, a web server and an ensemble without a quorum look alike to it, but not to a person.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

ANSWER_S = 5.0
"""How long a host may take, a connection and an answer each: a server that is busy is slow to shake
hands, above all for the first time. All are asked at once, so the user waits no longer for many."""

_QUESTION = b"srvr\n"
"""ZooKeeper's four-letter word that is allowed by default; the newline is for others."""

_TLS_ALERT = b"\x15\x03"
"""How a server answers that expects TLS, unless it hangs up, as zookeeper does."""


def why_unreachable(hosts: Sequence[tuple[str, int]], tls: ssl.SSLContext | None) -> str:
    """Return what each host does with a connection, as parts of a sentence.

    Args:
        hosts: Host and port of each server.
        tls: What connections are made with, if they are to be secure.
    """

    def found(place: tuple[str, int]) -> str:
        host, port = place
        return f"{host}:{port} {_found(host, int(port), tls)}"

    with ThreadPoolExecutor(max(1, len(hosts))) as pool:
        return "; ".join(pool.map(found, hosts))


def _found(host: str, port: int, tls: ssl.SSLContext | None) -> str:
    try:
        connection = socket.create_connection((host, port), ANSWER_S)
    except (socket.gaierror, UnicodeError):
        return "cannot be resolved"
    except ConnectionRefusedError:
        return "refuses connections, nothing listens there"
    except OSError as error:
        return f"cannot be connected to ({error})"
    with connection:
        try:
            if tls is None:
                return _meaning(_answer(connection))
            with tls.wrap_socket(connection, server_hostname=host) as secure:
                return _meaning(_answer(secure))
        except ssl.SSLCertVerificationError as error:
            return (
                f"has a certificate that is not trusted ({error.verify_message}); look at 'ca' in "
                "zookeeper_tls, and at the names in the certificate"
            )
        except ssl.SSLError as error:
            return (
                f"speaks no TLS that fits ({error.reason}); is it the secure port, and does it ask "
                "for 'certfile' and 'keyfile'?"
            )
        except OSError as error:
            return f"listens, but does not answer as zookeeper does ({error})"


def _answer(connection: socket.socket) -> bytes:
    connection.sendall(_QUESTION)
    return connection.recv(4096)


def _meaning(answer: bytes) -> str:
    if b"READ-ONLY" in answer or b"not currently serving requests" in answer:
        return "has no quorum: it is read-only or serves nobody; bring back the other servers"
    if answer.startswith(b"Zookeeper version") or b"whitelist" in answer:
        return "is zookeeper, but opened no session in time"
    if not answer or answer.startswith(_TLS_ALERT):
        return "takes no question in clear text; does it speak TLS? set zookeeper_tls"
    return f"is not zookeeper; it answers {answer[:40]!r}"
