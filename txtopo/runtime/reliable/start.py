"""Starts an at-least-once topology: makes its carrier and driver, and starts the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.config import Config
from txtopo.errors import ConfigError
from txtopo.runtime.handle import RecentProgress, ReliableRun
from txtopo.runtime.progress import Progressed, TopologyListener
from txtopo.runtime.reliable.carrier import LocalSlots, SlotCarrier
from txtopo.runtime.reliable.driver import ReliableContext, ReliableDriver
from txtopo.runtime.scheduler import ExecutorScheduler, ThreadScheduler
from txtopo.runtime.session import active_session, check_arguments, open_session
from txtopo.stages.program import Program, compile_program
from txtopo.topology.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Only one thread of a Python process computes at a time. A second slot helps bolts that wait.
LOCAL_SLOTS = 2


@dataclass(frozen=True, slots=True)
class Opened:
    """A started topology, with its driver and slots, which simulations need."""

    run: ReliableRun
    driver: ReliableDriver
    slots: LocalSlots


def start_reliable(
    graph: Graph,
    spark: SparkSession | None,
    config: Config,
    listeners: Sequence[TopologyListener] = (),
    *,
    active: bool = True,
) -> ReliableRun:
    """Start an at-least-once topology and return its handle.

    Args:
        graph: The topology.
        spark: The Spark session; see ``Config.carrier``.
        config: The settings.
        listeners: They are told of every event.
        active: Whether to begin at once; otherwise it waits for ``activate``.

    Raises:
        ConfigError: A setting is wrong. Nothing was started; mend the setting.
    """
    carrier = _carrier(config)
    check_arguments(spark, listeners)
    session = spark if spark is not None or carrier == "local" else active_session()
    if carrier == "local" or (carrier == "auto" and session is None):
        return start_local(graph, config, listeners, active=active).run
    from txtopo.runtime.resident.slot_jobs import SlotJobs
    from txtopo.runtime.resident.sockets import Keys

    keys = Keys.make()
    from txtopo.runtime.resident.bolt_slots import BoltSlots

    jobs = SlotJobs(session if session is not None else open_session()[0], "bolts")
    program = compile_program(graph, config, jobs.fit(config.slots))
    scheduler = ThreadScheduler(f"txtopo-{graph.id}")
    slots = BoltSlots(jobs, keys, config, scheduler)
    return _start(program, config, slots, scheduler, listeners, active=active)[0]


def start_local(
    graph: Graph,
    config: Config,
    listeners: Sequence[TopologyListener] = (),
    *,
    active: bool = True,
    scheduler: ExecutorScheduler | None = None,
) -> Opened:
    """Start an at-least-once topology in this process.

    Args:
        graph: The topology.
        config: The settings.
        listeners: They are told of every event.
        active: Whether to begin at once; otherwise it waits for ``activate``.
        scheduler: Provides time and threads; real ones by default.

    Raises:
        ConfigError: A setting is wrong. Nothing was started; mend the setting.
    """
    if _carrier(config) == "resident":
        raise ConfigError(
            "carrier 'resident' runs on Spark in real time only; use carrier='local'",
            setting="carrier",
        )
    program = compile_program(graph, config, config.slots or LOCAL_SLOTS)
    scheduler = scheduler or ThreadScheduler(f"txtopo-{graph.id}")
    slots = LocalSlots(scheduler)
    run, driver = _start(program, config, slots, scheduler, listeners, active=active)
    return Opened(run, driver, slots)


def _start(
    program: Program,
    config: Config,
    slots: SlotCarrier,
    scheduler: ExecutorScheduler,
    listeners: Sequence[TopologyListener],
    *,
    active: bool,
) -> tuple[ReliableRun, ReliableDriver]:
    recent = RecentProgress(Progressed)
    context = ReliableContext(program, config, slots, scheduler)
    driver = ReliableDriver(context, [recent, *listeners], active=active)
    driver.start()
    return ReliableRun(program.topology_id, driver, recent), driver


def _carrier(config: Config) -> str:
    if not isinstance(config, Config):
        raise ConfigError(
            f"config is of the wrong type; got {type(config).__name__}; expected a Config(…)"
        )
    if config.carrier not in ("auto", "local", "resident"):
        raise ConfigError(
            f"carrier {config.carrier!r} cannot carry an at-least-once topology, whose bolts live "
            "longer than a Spark job; use carrier='resident' on Spark, or 'local'",
            setting="carrier",
        )
    if config.lost_slot == "rdd":
        raise ConfigError(
            "an at-least-once topology cannot go on with the carrier 'rdd', whose jobs end with "
            "each batch; got lost_slot='rdd'; expected 'end', with which it waits for its slots",
            setting="lost_slot",
        )
    return config.carrier
