"""Kinds of bolts: the framework calls the bolts of each kind in their own way.

A kind travels to the tasks in the program, so compare kinds with ``==``: a copy is not identical.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from txtopo.bolts.bolt import ArrowBolt, BasicBolt, BatchBolt, DataFrameBolt
from txtopo.bolts.persistent_aggregate import PersistentAggregate


@dataclass(frozen=True, slots=True)
class BoltKind:
    """The kind of a bolt.

    Attributes:
        base: The class from which a user derives such a bolt.
        text: Its name in messages, explanations and fingerprints. A stored fingerprint has it, so
            it must not change.
        calls: The methods of the bolt that the framework calls, with their arguments.
        frame: Whether Spark runs it as a plan, without tasks.
    """

    base: type
    text: str
    calls: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    frame: bool = False

    @property
    def spout(self) -> Literal[False]:
        """Always false, since this is a kind of bolts."""
        return False


BASIC_BOLT = BoltKind(
    BasicBolt,
    "basic bolt",
    {"prepare": ("config", "context"), "execute": ("tuple", "collector")},
)
BATCH_BOLT = BoltKind(
    BatchBolt,
    "batch bolt",
    {
        "prepare": ("config", "context", "collector", "attempt"),
        "execute": ("tuple",),
        "finish_batch": (),
    },
)
ARROW_BOLT = BoltKind(
    ArrowBolt,
    "arrow bolt",
    {
        "prepare": ("config", "context", "collector", "attempt"),
        "execute": ("batch",),
        "finish_batch": (),
    },
)
DATAFRAME_BOLT = BoltKind(
    DataFrameBolt,
    "DataFrame bolt",
    {"prepare": ("config", "context"), "transform": ("frame", "attempt")},
    frame=True,
)
PERSISTENT_AGGREGATE = BoltKind(PersistentAggregate, "persistent aggregate")

BOLTS = {
    kind.base: kind
    for kind in (BASIC_BOLT, BATCH_BOLT, ARROW_BOLT, DATAFRAME_BOLT, PERSISTENT_AGGREGATE)
}
"""The kinds that a ``TransactionalTopologyBuilder`` takes, by the class of the user."""
