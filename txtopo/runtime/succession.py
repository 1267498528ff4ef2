"""Succession: runs a topology with one driver after another, behind one handle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from txtopo.ensemble.commands import KILLED
from txtopo.runtime.handle import RunDriver, resolve
from txtopo.runtime.listeners import Listeners
from txtopo.runtime.progress import Stopped, TopologyListener

if TYPE_CHECKING:
    from txtopo.metadata import Json
    from txtopo.runtime.scheduler import Scheduler


class StartableDriver(RunDriver, Protocol):
    """A driver that has not been started."""

    def start(self) -> None:
        """Start the loop of the driver."""
        ...


Open = Callable[[Sequence[TopologyListener], bool], StartableDriver]
"""Opens a driver from its listeners and whether its spouts are active.

It blocks, and raises the errors of ``start``.
"""


D = TypeVar("D", bound=StartableDriver)


class Succession(Generic[D]):
    """The object behind a handle whose run has several drivers, one after another.

    Each driver has its own loop, and so has this object. All methods are called on its loop, except
    ``post`` and ``on_loop``. Listeners receive only the last end.

    Args:
        topology_id: Id of the topology.
        listeners: They receive each change.
        scheduler: Time and threads of this loop.
    """

    def __init__(
        self, topology_id: str, listeners: Sequence[TopologyListener], scheduler: Scheduler
    ) -> None:
        self.ended: Future[Exception | None] = Future()
        self._topology_id = topology_id
        self._listeners = Listeners(topology_id, listeners)
        self._scheduler = scheduler
        self._driver: D | None = None
        self._stopping = False
        self._end_status = ""
        self._waiting: list[Future[None]] = []

    @property
    def pace(self) -> dict[str, Json] | None:
        """The pace of the current driver; None without a driver."""
        return None if (driver := self._driver) is None else driver.pace

    def post(self, callback: Callable[[], None]) -> None:
        """Call *callback* on the loop."""
        self._scheduler.post(callback)

    def on_loop(self) -> bool:
        """Return whether the caller is on a loop of the topology."""
        driver = self._driver
        return self._scheduler.on_loop() or (driver is not None and driver.on_loop())

    def wait_for_rest(self, future: Future[None]) -> None:
        """Resolve *future* when nothing is left to do, even if that takes several drivers."""
        if self.ended.done():
            resolve(future, self.ended.result())
            return
        self._waiting.append(future)
        self._wait(future)

    def _begin(self, driver: D, then: Callable[[Exception | None], None]) -> None:
        """Start a driver, and call *then* on this loop with its error, or None, when it ends."""
        self._driver = driver
        driver.ended.add_done_callback(lambda ended: self.post(lambda: then(ended.result())))
        driver.start()
        self._waiting = [each for each in self._waiting if not each.done()]
        for future in self._waiting:
            self._wait(future)
        if self._stopping:
            driver.post(driver.stop)

    def _wait(self, future: Future[None]) -> None:
        """Resolve *future* when the current driver is at rest; if it fails, wait for the next."""
        if (driver := self._driver) is None:
            return
        rested: Future[None] = Future()

        def told() -> None:
            if rested.exception() is None:
                self._waiting = [each for each in self._waiting if each is not future]
                resolve(future, None)

        rested.add_done_callback(lambda _: self.post(told))
        driver.post(lambda: driver.wait_for_rest(rested))

    def _end(self, error: BaseException | None) -> None:
        if self.ended.done():
            return
        ended = None if error is None else as_exception(error)
        if self._end_status != KILLED:
            self._end_status = "stopped" if error is None else "failed"
        self._listeners.tell(Stopped(self._topology_id, ended))
        for future in self._waiting:
            resolve(future, ended)
        self.ended.set_result(ended)
        self._scheduler.stop()


def as_exception(error: BaseException) -> Exception:
    """Return the error as an ``Exception``, which a result can carry."""
    return error if isinstance(error, Exception) else RuntimeError(repr(error))
