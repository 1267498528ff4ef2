"""The end of the driver's socket, while tasks still speak."""

from __future__ import annotations

import threading

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.unit.resident.threads import HOST
from txtopo.resident.sockets import Keys
from txtopo.resident.transport import DriverSocket
from txtopo.resident.wire import END, new_identity
from txtopo.runtime.scheduler import ThreadScheduler

pytestmark = pytest.mark.integration


def test_who_speaks_after_the_end_does_not_hold_it_up() -> None:
    """The goodbye of another copy of a task may be heard when all jobs have ended."""
    scheduler, closed = ThreadScheduler("txtopo-test-socket"), threading.Event()

    def open_and_close() -> None:
        socket = DriverSocket(Keys.make(), HOST, scheduler, lambda _: None, lambda _: None)
        socket.open()
        socket.close(closed.set)
        wait_until(lambda: bool(socket._thread_end.closed), "the socket is closed")
        socket.send(new_identity(1), END)

    scheduler.start(open_and_close, print)

    assert closed.wait(LIMIT_S)
    scheduler.post(scheduler.stop)
