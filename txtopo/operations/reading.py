"""What ZooKeeper and the stores say, node by node, also if some of it cannot be read.

A coordinator stops at the first thing that it cannot read. Who looks after a fault wants to see the
rest as well, so each error is kept in the place of what could not be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from txtopo.errors import TxtopoError
from txtopo.metadata import Json
from txtopo.operations.site import Site
from txtopo.runtime.journaling import from_json
from txtopo.state.ledger import Ledger
from txtopo.transactional_state.nodes import (
    BATCHES,
    CURRENT,
    EPOCH,
    QUARANTINE,
    batch_of,
    current_of,
    ensemble_of,
    epoch_of,
    operation_of,
    txid_of,
)
from txtopo.transactional_state.records import corrupt
from txtopo.transactional_state.store import Node

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading:
    """What was found.

    Attributes:
        nodes: By path, the node, None for one that is missing, or why it cannot be read.
        ledgers: By state, the ledger, None for one that nobody has claimed, or the error.
    """

    nodes: dict[str, Node | TxtopoError | None]
    ledgers: dict[str, Ledger | TxtopoError | None]

    def values(self, parent: str) -> dict[int, Json]:
        """Return what the readable nodes below a path hold, by txid."""
        return {
            txid_of(path): node.value
            for path, node in self.nodes.items()
            if path.startswith(parent + "/") and isinstance(node, Node)
        }

    @property
    def current(self) -> int | None:
        """The lowest uncommitted txid; None if it is not known."""
        node = self.nodes[CURRENT]
        return current_of(node) if isinstance(node, Node) else None

    @property
    def epoch(self) -> int | None:
        """The newest epoch; None if it is not known."""
        node = self.nodes[EPOCH]
        return epoch_of(node) if isinstance(node, Node) else None

    @property
    def ensemble(self) -> str:
        """The token of the ensemble; empty if it is not known."""
        node = self.nodes[EPOCH]
        return ensemble_of(node) if isinstance(node, Node) else ""

    @property
    def operation(self) -> dict[str, Json] | None:
        """The verb that was begun and has not ended."""
        node = self.nodes[CURRENT]
        return operation_of(node) if isinstance(node, Node) else None

    @property
    def known_epoch(self) -> int:
        """The highest epoch that anything which can be read names; 0 for none."""
        epochs = [self.epoch or 0]
        epochs += [each.epoch for each in self.ledgers.values() if isinstance(each, Ledger)]
        for txid, value in self.values(BATCHES).items():
            epochs.append(batch_of("", txid, Node(value, 0)).attempt.epoch)
        return max(epochs)


def read(site: Site) -> Reading:
    """Read all nodes and ledgers.

    Raises:
        CoordinatorUnavailable: ZooKeeper cannot be reached.
    """
    nodes: dict[str, Node | TxtopoError | None] = {
        EPOCH: _or_error(partial(_epoch, site)),
        CURRENT: _or_error(partial(_current, site)),
    }
    for parent in (BATCHES, QUARANTINE):
        for name in site.state.children(parent):
            path = f"{parent}/{name}"
            nodes[path] = _or_error(partial(_batch, site, path))
    ledgers = {name: _or_error(partial(_ledger, site, name)) for name in site.backends}
    return Reading(nodes, ledgers)


def _epoch(site: Site) -> Node | None:
    node = site.state.get(EPOCH)
    if node is not None:
        epoch_of(node)
    return node


def _current(site: Site) -> Node | None:
    node = site.state.get(CURRENT)
    if node is not None:
        current_of(node)
        operation_of(node)
    return node


def _batch(site: Site, path: str) -> Node | None:
    txid, node = txid_of(path), site.state.get(path)
    if path.startswith(BATCHES):
        from_json(txid, batch_of(path, txid, node).metadata)
    elif node is None or not isinstance(node.value, dict):
        raise corrupt(path, node and node.value)
    return node


def _ledger(site: Site, name: str) -> Ledger | None:
    with site.backends[name].snapshot() as snapshot:
        return snapshot.ledger


def _or_error(read_it: Callable[[], T]) -> T | TxtopoError:
    try:
        return read_it()
    except TxtopoError as error:
        return error
