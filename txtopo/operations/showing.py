"""show: what ZooKeeper, every ledger and the spout say, side by side. Changes nothing.

It takes no lock, so it may run beside a coordinator; then its parts are of different moments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.config import Config
from txtopo.errors import TxtopoError
from txtopo.metadata import Json
from txtopo.operations.reading import Reading, read
from txtopo.operations.site import Access, Site, open_site
from txtopo.runtime.batch_planner import BatchPlanner
from txtopo.runtime.journaling import from_json
from txtopo.state.ledger import RELEASED, Ledger
from txtopo.transactional_state.nodes import BATCHES, QUARANTINE, batch_of
from txtopo.transactional_state.store import Node

if TYPE_CHECKING:
    from txtopo.builders.transactional import Topology


@dataclass(frozen=True, slots=True)
class Overview:
    """What is known of a topology; ``print`` shows it.

    Attributes:
        topology_id: Id of the topology.
        leader: The candidate that leads, or None.
        epoch: The newest epoch; None if there is none, or it cannot be read.
        ensemble: The token by which ledgers know this ZooKeeper; empty if it has none yet.
        current: The lowest uncommitted txid; None if there is none, or it cannot be read.
        operation: The operator's verb that was begun and has not ended, or None.
        batches: What is stored of each batch, by txid. Keep it: ``repair_node``, ``rebuild`` and
            ``rewind`` take it back.
        quarantined: What is kept of batches that were taken out, by txid.
        states: The ledger of each state, None if nobody has claimed it, or why it cannot be read.
        lag: Records behind the last committed txid, by partition, or why the spout cannot say.
        unreadable: Why a node cannot be read, by its path.
    """

    topology_id: str
    leader: Json
    epoch: int | None
    ensemble: str
    current: int | None
    operation: dict[str, Json] | None
    batches: dict[int, Json]
    quarantined: dict[int, Json]
    states: dict[str, Ledger | TxtopoError | None]
    lag: Mapping[str, int] | Exception
    unreadable: dict[str, TxtopoError]

    def __str__(self) -> str:
        lines = [
            f"topology {self.topology_id!r}",
            f"  leader       {self.leader if self.leader is not None else 'none'}",
            f"  epoch        {self.epoch}",
            f"  ensemble     {self.ensemble or 'none'}",
            f"  current      {self.current}",
        ]
        if self.operation is not None:
            lines.append(f"  under way    {json.dumps(self.operation)}")
        lines += [f"  unreadable   {path}: {error}" for path, error in self.unreadable.items()]
        lines += [
            f"  batch        {txid}: {json.dumps(each)}" for txid, each in self.batches.items()
        ]
        lines += [
            f"  quarantined  {txid}: {json.dumps(each)}" for txid, each in self.quarantined.items()
        ]
        lines += [f"  state        {name!r}: {_told(each)}" for name, each in self.states.items()]
        lines.append(f"  lag          {self.lag if self.lag else 'not known, or none'}")
        return "\n".join(lines)


def show(topology: Topology, config: Config = Config(), *, access: Access = Access()) -> Overview:
    """Return what ZooKeeper, the ledgers and the spout say; may be called at any time.

    Raises:
        CoordinatorUnavailable: ZooKeeper cannot be reached.
    """
    with open_site(topology, config, access) as site:
        reading = read(site)
        return Overview(
            topology_id=topology.id,
            leader=site.state.leader(),
            epoch=reading.epoch,
            ensemble=reading.ensemble,
            current=reading.current,
            operation=reading.operation,
            batches=reading.values(BATCHES),
            quarantined=reading.values(QUARANTINE),
            states=reading.ledgers,
            lag=_lag(site, reading),
            unreadable={
                path: error
                for path, error in reading.nodes.items()
                if isinstance(error, TxtopoError)
            },
        )


def _lag(site: Site, reading: Reading) -> Mapping[str, int] | Exception:
    last = (reading.current or 1) - 1
    value = reading.values(BATCHES).get(last)
    if value is None:
        return {}
    metadata = from_json(last, batch_of("", last, Node(value, 0)).metadata)
    try:
        planner = BatchPlanner(site.graph.id, site.graph.spout, site.config)
        try:
            return planner.lag(metadata)
        finally:
            planner.close()
    except Exception as error:  # noqa: BLE001 - the spout's code; told, not raised
        return error


def _told(ledger: Ledger | TxtopoError | None) -> str:
    if ledger is None:
        return "nobody has claimed it"
    if isinstance(ledger, TxtopoError):
        return f"cannot be read: {ledger}"
    if ledger.topology == RELEASED:
        owner = "nobody any more"
    else:
        owner = f"{ledger.owner} and ensemble {ledger.ensemble!r}"
    return f"txid {ledger.txid} of {ledger.writer}, epoch {ledger.epoch}, belongs to {owner}"
