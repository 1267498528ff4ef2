"""Server: what a topology connects to, as spouts, bolts, lookups, stores and ensembles name it.

This file only names addresses. :mod:`txtopo.connecting` tries them, and
:mod:`txtopo.runtime.needs` collects those of a topology.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

Address = tuple[str, int]

_PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class Server:
    """A server that a topology connects to.

    Attributes:
        name: What it is, such as ``Kafka``.
        addresses: The host and port of each of its addresses. One that answers is enough.
    """

    name: str
    addresses: tuple[Address, ...]

    @classmethod
    def of(cls, name: str, text: str, port: int) -> Self:
        """Return the server that a URL or a list names; it keeps neither user nor password.

        Args:
            name: What it is.
            text: ``host:port,host:port``, ``scheme://user:password@host:port/path``, or several
                of these, with commas in between. An address that cannot be read is left out: the
                client of the server refuses it.
            port: The port of an address without one.

        Example:
            >>> Server.of("Kafka", "k1:9092,k2", 9092).addresses
            (('k1', 9092), ('k2', 9092))
        """
        return cls(name, tuple(dict.fromkeys(_addresses(text, port))))


@runtime_checkable
class ConnectingFactory(Protocol):
    """A factory of states or of an ensemble that names its servers; optional.

    A start tries each of them once before Spark starts, and warns if it does not answer. Without
    this method, a server that is down shows when the first state is opened.
    """

    def servers_of(self, url: str) -> Sequence[Server]:
        """Return the servers that a URL names. It connects to none.

        Args:
            url: The URL of a state, or ``zookeeper.hosts``.
        """
        ...


def _addresses(text: str, port: int) -> Iterator[Address]:
    for each in text.split(","):
        place = each.strip().rpartition("://")[2]
        for end in "/?#":
            place = place.partition(end)[0]
        host, given = _divided(place.rpartition("@")[2])
        number = int(given) if given.isascii() and given.isdigit() else 0 if given else port
        if host and 0 < number <= _PORT_MAX:
            yield host, number


def _divided(place: str) -> tuple[str, str]:
    """Return the host and the port of ``host:port``; the port is empty if there is none."""
    if place.startswith("["):  # IPv6
        host, _, rest = place[1:].partition("]")
        return host, rest.removeprefix(":")
    host, _, port = place.partition(":")
    return host, port
