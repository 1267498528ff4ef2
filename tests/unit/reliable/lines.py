"""A line of bolts that a test feeds, in simulated time."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.reliable.bolts import WORD
from txtopo import BasicBolt, Bolt, Config, OutputCollector, TaskContext, TopologyBuilder, Tuple
from txtopo.runtime.progress import TopologyListener
from txtopo.spouts import MemorySpout
from txtopo.testing import FeederSpout, SimulatedCluster

CONFIG = Config(message_timeout_s=10)


class Hold(Bolt):
    """Never acks."""

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        """Nothing to do."""

    def execute(self, tuple: Tuple) -> None:
        """Forget it."""


def started(
    *bolts: Bolt | BasicBolt,
    config: Config = CONFIG,
    parallelism: int = 1,
    spouts: int = 1,
    apart: bool = False,
    listeners: Sequence[TopologyListener] = (),
) -> tuple[FeederSpout, SimulatedCluster]:
    """Start a line of bolts, each fed by the one before.

    With *apart* the spout is in slot 1, and each bolt, which has one task, in slot 0.
    """
    feeder = FeederSpout(WORD)
    builder = TopologyBuilder()
    if apart:
        builder.set_spout("idle", MemorySpout([], WORD))
    builder.set_spout("words", feeder, spouts)
    source = "words"
    for number, bolt in enumerate(bolts):
        builder.set_bolt(f"bolt-{number}", bolt, parallelism).shuffle_grouping(source)
        source = f"bolt-{number}"
    cluster = SimulatedCluster()
    cluster.start(builder.build_topology(), config, listeners)
    return feeder, cluster
