"""Wings: registers with the core what it asks for: watchers, notebooks, slots, DataFrames.

The core imports no wing. ``txtopo/__init__.py`` imports this module, in each process; it loads a
wing when the core first asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from txtopo.carriers.slots import host_slots_with
from txtopo.notebook import show_with
from txtopo.runtime.engine import run_with
from txtopo.runtime.watching import watch_with
from txtopo.topology.component import RELIABLE_KINDS
from txtopo.topology.engine import plan_with

if TYPE_CHECKING:
    from txtopo.carriers.slots import SlotHosting
    from txtopo.config import AnyConfig
    from txtopo.frames.engine import FrameEngine
    from txtopo.runtime.watching import RunKind, Watcher
    from txtopo.topology.bolt_kinds import BoltKind
    from txtopo.topology.graph import Graph
    from txtopo.topology.spout_kinds import SpoutKind


def _watcher(
    graph: Graph, kind: RunKind, clock: Callable[[], float], config: AnyConfig | None
) -> Watcher:
    from txtopo.ui.run_watcher import RunWatcher

    return RunWatcher(graph, kind, clock, config)


def _html(value: object) -> str:
    from txtopo.ui.notebook.values import html

    return html(value)


def _engine() -> FrameEngine:
    from txtopo.frames.engine import FrameEngine

    return FrameEngine()


def _slots() -> SlotHosting:
    from txtopo.resident.hosting import ResidentSlots

    return ResidentSlots()


def _reliable_kinds() -> Mapping[type, SpoutKind | BoltKind]:
    from txtopo.reliable.kinds import RELIABLE_BOLTS, RELIABLE_SPOUTS

    return {**RELIABLE_SPOUTS, **RELIABLE_BOLTS}


RELIABLE_KINDS.register(_reliable_kinds)
host_slots_with(_slots)
watch_with(_watcher)
show_with(_html)
plan_with(_engine)
run_with(_engine)
