"""The event loop on which the calls of ``map_async`` run: one for each process, on its own thread.

It is not the loop of the caller, so a loop that runs already, as in a notebook, does no harm. It
stays from one batch to the next: a client that a function keeps, such as a pool of connections,
belongs to the loop on which it was made. It is closed when the process ends, and a fork of the
process makes one of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading

_CLOSE_S = 5.0


class _CallsLoop:
    """The loop, once somebody has asked for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(  # noqa: TID251 - no decision is made on it
                    target=_run, args=(self._loop,), name="txtopo-calls", daemon=True
                )
                thread.start()
                self._join = thread.join
            return self._loop

    def close(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._join(_CLOSE_S)
            if not loop.is_running():
                loop.close()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            continue  # of a task that a function began, and told to who waits for that task
        return


_of_process = _CallsLoop()


def calls_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop of this process. Any thread may call it."""
    return _of_process.get()


def _close() -> None:
    _of_process.close()


def _begin_again() -> None:
    """Forget the loop of the process that this one is a fork of: its thread is not here."""
    global _of_process
    _of_process = _CallsLoop()


atexit.register(_close)
os.register_at_fork(after_in_child=_begin_again)
