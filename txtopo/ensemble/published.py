"""Published: how far a publisher has published the rows of a state, as a node of its topology.

A publisher of rows (:mod:`txtopo.outbox`) writes the node; a verb that takes txids back reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import quote

from txtopo.attempt import txids_text
from txtopo.ensemble.nodes import PUBLISHED
from txtopo.ensemble.store import Json, Node, Put, TransactionalState
from txtopo.errors import CorruptNodeError


@dataclass(frozen=True, slots=True)
class Published:
    """The contents of a node below ``/published``.

    Attributes:
        state: The state, as ``component.state``.
        publisher: Name of the publisher.
        up_to: The last txid whose rows are published; 0 for none.
        begun_up_to: The last txid whose rows may be published, since that was begun.
        token: What the process that has written it has drawn; empty for none.
    """

    state: str
    publisher: str
    up_to: int = 0
    begun_up_to: int = 0
    token: str = ""

    def put_back(self, txid: int) -> Put:
        """Return the write by which the rows of later txids than *txid* count as not published."""
        back = replace(self, up_to=min(self.up_to, txid), begun_up_to=min(self.begun_up_to, txid))
        return Put(self.path, back.to_json())

    @property
    def path(self) -> str:
        """The path of the node; any name makes one."""
        return f"{PUBLISHED}/{quote(self.state, safe='')}&{quote(self.publisher, safe='')}"

    def to_json(self) -> Json:
        """Return the value of the node."""
        return {
            "state": self.state,
            "publisher": self.publisher,
            "published_up_to": self.up_to,
            "begun_up_to": self.begun_up_to,
            "token": self.token,
        }


def published_of(path: str, node: Node | None) -> Published:
    """Return what a node below ``/published`` holds.

    Raises:
        CorruptNodeError: It holds something else, or is missing.
    """
    match node.value if node else None:
        case {
            "state": str(state),
            "publisher": str(publisher),
            "published_up_to": int(up_to),
            "begun_up_to": int(begun),
            "token": str(token),
        } if 0 <= up_to <= begun:
            return Published(state, publisher, up_to, begun, token)
    got = f"{node and node.value!r:.200}"
    raise CorruptNodeError(
        f"node {path} of a publisher cannot be read; got {got}; expected its progress; restore "
        "its content with a ZooKeeper client, or delete it, so that the publisher begins with "
        "the first row",
        path=path,
        got=got,
    )


def what_is_published(state: TransactionalState, txid: int) -> str:
    """Return what publishers have published of later txids than *txid*, for the plan of a verb.

    It is the end of a sentence; empty if that is nothing.

    Raises:
        CorruptNodeError: A node cannot be read.
    """
    return "".join(
        f"; {txids_text(txid + 1, each.begun_up_to)} of state {each.state!r} cannot be recalled: "
        f"publisher {each.publisher!r} has published them, or has begun to"
        for each in published_after(state, txid)
    )


def published_after(state: TransactionalState, txid: int) -> list[Published]:
    """Return the publishers that have begun to publish rows of later txids than *txid*.

    Raises:
        CorruptNodeError: A node cannot be read.
    """
    paths = [f"{PUBLISHED}/{name}" for name in state.children(PUBLISHED)]
    found = [published_of(path, state.get(path)) for path in paths]
    return [each for each in found if each.begun_up_to > txid]
