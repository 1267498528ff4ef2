"""ReliableRun: what the user holds of a running at-least-once topology."""

from __future__ import annotations

from typing import ClassVar

from txtopo.runtime.reliable.progress import ReliableProgress
from txtopo.runtime.run_handle import RunHandle


class ReliableRun(RunHandle[ReliableProgress]):
    """A running at-least-once topology. All methods may be called from any thread.

    ``status`` is one of starting, running, deactivated, stopping, stopped, failed. A progress is
    told each second, at rest and at the end. ``process_all_available`` waits until the spouts have
    nothing left and every tree has ended; ``stop`` closes spouts and bolts and drops what is under
    way: what was not acked is still with the source. ``deactivate`` emits no new tuples, and what
    is pending is processed and acked; ``activate`` sets a run up that was started inactive.

    Example:
        >>> run = topology.start(config=Config(carrier="local", max_spout_pending=1000))
        >>> run.process_all_available()
        >>> run.last_progress.acked
        >>> run.stop()
    """

    hangs: ClassVar[str] = "a spout or bolt"
    callers: ClassVar[str] = "a listener, a spout or a bolt, on a thread"
