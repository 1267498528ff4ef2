"""A server that refuses the credentials ends the waiting at once: a stub says what it would say."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from txtopo.ensemble.zookeeper.state import ZooKeeperTransactionalState
from txtopo.errors import AuthError

CONNECTED = struct.pack(">iiqi16s?", 0, 4000, 1, 16, b"", False)
AUTH_FAILED = struct.pack(">iqi", -4, 0, -115)


@pytest.fixture
def refusing() -> Iterator[str]:
    """Hosts of a server that answers the first request and refuses the second."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                # A client that had to wait too long has hung up, and comes again.
                with client, contextlib.suppress(OSError):
                    for answer in (CONNECTED, AUTH_FAILED):
                        client.recv(4096)
                        client.sendall(struct.pack(">i", len(answer)) + answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.row(2)
def test_refused_credentials_are_not_tried_again(refusing: str) -> None:
    with pytest.raises(AuthError, match="scheme 'digest'"):
        ZooKeeperTransactionalState(refusing, "t", auth="a:b", connect_timeout_s=60)
