"""Server: what a topology connects to, as spouts, bolts, lookups, stores and ensembles name it.

This file only names addresses. :mod:`txtopo.connecting` tries them, and
:mod:`txtopo.runtime.needs` collects those of a topology.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

Address = tuple[str, int]

_PORT_MAX = 65_535
# A password that is not percent-encoded may hold any character. No part of it may become an
# address, since messages show addresses. So what is not clearly an address is left out.
_COMMA = re.compile(r",(?=\s*[\w+.-]+://|[^@]*$)")
_ADDRESS = re.compile(
    r"(?:[\w+.-]+://)?(?P<login>[^/?#]*@)?"
    r"(?:\[(?P<ipv6>[^]]+)\]|(?P<name>[^][:/?#@,]+))(?::(?P<port>[0-9]{1,5}))?"
    r"(?(login)(?:[/?#]|$)|(?:[/?#][^@]*)?$)"
)


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
    for each in _COMMA.split(text):
        found = _ADDRESS.match(each.strip())
        number = int(found["port"] or port) if found else 0
        if found and 0 < number <= _PORT_MAX:
            yield found["ipv6"] or found["name"], number
