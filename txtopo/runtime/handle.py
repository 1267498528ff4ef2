"""TopologyRun: what the user holds of a running topology, after Spark's ``StreamingQuery``."""

from __future__ import annotations

import signal
from types import FrameType
from typing import ClassVar

from txtopo.runtime.progress import Progress
from txtopo.runtime.run_handle import RunHandle


class TopologyRun(RunHandle[Progress]):
    """A running topology. All methods may be called from any thread.

    ``status`` is one of starting, standby, running, deactivated, leadership lost, stopping,
    stopped, failed. There is a progress after each commit. ``process_all_available`` waits until
    the spout has nothing left and all of it is committed; ``stop`` finishes the commit in hand and
    drops the rest; ``deactivate`` plans no new batches, and what is in flight is committed.

    Example:
        >>> run = topology.start(spark, Config(max_spout_pending=4))
        >>> run.process_all_available()
        >>> run.stop()
    """

    hangs: ClassVar[str] = "a committer"
    callers: ClassVar[str] = "a listener, on the loop"

    def stop_on(self, *numbers: signal.Signals) -> None:
        """Let signals stop the run as :meth:`stop` does, without waiting.

        Called once by the main thread, before it waits for the end:
        ``run.stop_on(signal.SIGTERM, signal.SIGINT)``, then ``run.await_termination()``, which
        returns when the commit in hand is done. The first signal gives the handler back that was
        there before, so that a second one ends a process whose committer hangs.

        Raises:
            ValueError: Called by another thread; Python handles signals in the main thread only.
        """
        before = {number: signal.getsignal(number) for number in numbers}

        def stop(received: int, frame: FrameType | None) -> None:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._driver.post(self._driver.stop)

        for number in numbers:
            signal.signal(number, stop)
