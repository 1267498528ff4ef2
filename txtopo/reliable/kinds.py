"""Kinds of the spouts and bolts of at-least-once topologies, which know tuples and no batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from txtopo.bolts.bolt import BasicBolt
from txtopo.reliable.bolt import Bolt
from txtopo.reliable.spout import Spout
from txtopo.topology.bolt_kinds import BASIC_BOLT, BoltKind
from txtopo.topology.spout_kinds import SpoutKind


class ReliableKind(SpoutKind):
    """A spout of an at-least-once topology."""

    base = Spout
    text = short_text = "spout"
    calls: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "open": ("config", "context", "collector"),
        "next_tuple": (),
        "ack": ("message_id",),
        "fail": ("message_id",),
    }
    driven_by = "ackers"
    plans_batches = False
    unplanned = "an at-least-once topology has no batches"
    runs = "in the driver"


BOLT = BoltKind(
    Bolt, "bolt", {"prepare": ("config", "context", "collector"), "execute": ("tuple",)}
)

RELIABLE_SPOUTS: dict[type, SpoutKind] = {Spout: ReliableKind()}
"""The kinds of spouts that a ``TopologyBuilder`` takes, by the class of the user."""

RELIABLE_BOLTS: dict[type, BoltKind] = {Bolt: BOLT, BasicBolt: BASIC_BOLT}
"""The kinds of bolts that it takes."""
