"""Start of at-least-once topologies: puts the parts of a run together and starts its loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txtopo.config import Config
from txtopo.errors import ConfigError
from txtopo.planning.program import compile_program
from txtopo.runtime.progress import TopologyListener
from txtopo.runtime.reliable.driver import ReliableDriver, ReliableParts
from txtopo.runtime.reliable.handle import RecentReliableProgress, ReliableRun
from txtopo.runtime.reliable.local import LocalSlots
from txtopo.runtime.scheduler import LaneScheduler, ThreadScheduler
from txtopo.topology.graph import Graph

# One thread computes at a time in a process of Python; a second slot is for those that wait.
LOCAL_SLOTS = 2


@dataclass(frozen=True, slots=True)
class Opened:
    """A run with what a simulation reaches into."""

    run: ReliableRun
    driver: ReliableDriver
    slots: LocalSlots


def start_reliable(
    graph: Graph,
    config: Config,
    listeners: Sequence[TopologyListener] = (),
    *,
    active: bool = True,
    scheduler: LaneScheduler | None = None,
) -> Opened:
    """Start an at-least-once topology.

    Args:
        graph: The topology.
        config: How to run.
        listeners: Who is told of every change.
        active: Whether to begin at once, or to wait for ``activate``.
        scheduler: Time and threads; real ones by default.

    Raises:
        ConfigError: A setting does not fit; nothing has run.
    """
    if not isinstance(config, Config):
        raise ConfigError(
            f"config is of the wrong type; got {type(config).__name__}; expected a Config(…)"
        )
    if config.carrier not in ("auto", "local"):
        raise ConfigError(
            f"carrier {config.carrier!r} cannot carry an at-least-once topology, whose bolts live "
            "longer than a Spark job; use carrier='local'",
            setting="carrier",
        )
    program = compile_program(graph, config, config.slots or LOCAL_SLOTS)
    scheduler = scheduler or ThreadScheduler(f"txtopo-{graph.id}")
    slots = LocalSlots(scheduler)
    recent = RecentReliableProgress()
    parts = ReliableParts(program, config, slots, scheduler)
    driver = ReliableDriver(parts, [recent, *listeners], active=active)
    driver.start()
    return Opened(ReliableRun(graph.id, driver, recent), driver, slots)
