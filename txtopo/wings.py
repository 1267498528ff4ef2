"""Wings: registers what the core asks for: watchers, notebooks, slots, DataFrames, kinds.

The core imports no wing. ``txtopo/__init__.py`` imports this module, in each process; it loads a
wing when the core first asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from txtopo.carriers.slots import SLOT_HOSTING
from txtopo.notebook import RENDERER
from txtopo.runtime.watching import WATCHERS
from txtopo.topology.component import RELIABLE_KINDS
from txtopo.topology.engine import ENGINE

if TYPE_CHECKING:
    from txtopo.carriers.slots import SlotHosting
    from txtopo.notebook import Renderer
    from txtopo.runtime.engine import RunEngine
    from txtopo.runtime.watching import WatcherFactory
    from txtopo.topology.bolt_kinds import BoltKind
    from txtopo.topology.spout_kinds import SpoutKind


def _watchers() -> WatcherFactory:
    from txtopo.ui.run_watcher import RunWatcher

    return RunWatcher


def _renderer() -> Renderer:
    from txtopo.ui.notebook.values import html

    return html


def _engine() -> RunEngine:
    from txtopo.frames.engine import FrameEngine

    return FrameEngine()


def _slot_hosting() -> SlotHosting:
    from txtopo.resident.hosting import ResidentSlots

    return ResidentSlots()


def _reliable_kinds() -> Mapping[type, SpoutKind | BoltKind]:
    from txtopo.reliable.kinds import RELIABLE_BOLTS, RELIABLE_SPOUTS

    return {**RELIABLE_SPOUTS, **RELIABLE_BOLTS}


WATCHERS.register(_watchers)
RENDERER.register(_renderer)
ENGINE.register(_engine)
SLOT_HOSTING.register(_slot_hosting)
RELIABLE_KINDS.register(_reliable_kinds)
