"""Granted: the session timeout that a server gave, which need not be the one asked for.

A server grants 2 to 20 of its ticks. kazoo keeps the number to itself, but has it when it connects.
"""

from __future__ import annotations

import logging
from typing import Any

from kazoo.client import KazooClient

_log = logging.getLogger("txtopo.transactional_state")


def warn_of_another_timeout(client: KazooClient, asked_s: float) -> None:
    """Log it once if the server grants another session timeout than *asked_s*."""
    connection = client._connection
    connect = connection._connect
    said: list[float] = []

    def connect_and_look(*address: Any) -> tuple[float, float]:
        # What kazoo allows a server for an answer is the session's time, shared among the hosts.
        read_timeout_ms, connect_timeout_ms = connect(*address)
        granted_s = round(connect_timeout_ms * len(client.hosts)) / 1000
        if granted_s != round(asked_s, 3) and granted_s not in said:
            said.append(granted_s)
            _log.warning(_SENTENCE, asked_s, granted_s)
        return read_timeout_ms, connect_timeout_ms

    connection._connect = connect_and_look


_SENTENCE = (
    "session_timeout_s is %g, but zookeeper grants %g s; expected 2 to 20 ticks of the server; "
    "a leader that is silent for the granted time is deposed; change one of the two"
)
