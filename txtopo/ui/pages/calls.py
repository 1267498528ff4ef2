"""Calls: requests of a page to a run, an ensemble or a store, on threads and with a time limit.

The server has one thread for all connections, which must not block. A call that hangs is abandoned
on its thread, which does not keep the process from ending; the request is answered with 503.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from txtopo.errors import InfrastructureError
from txtopo.runtime.scheduler import Workers

T = TypeVar("T")


class TookTooLong(InfrastructureError):
    """A call did not return in time, or too many have not returned."""


class Calls:
    """Makes blocking calls for the server.

    Args:
        at_once_max: Maximum concurrent calls; more are refused.
        timeout_s: How long a request waits for its call.
    """

    def __init__(self, at_once_max: int, timeout_s: float) -> None:
        self._workers = Workers("txtopo-page")
        self._at_once_max = at_once_max
        self._timeout_s = timeout_s
        self._under_way = 0

    async def ask(self, call: Callable[[], T], timeout_s: float | None = None) -> T:
        """Call, and return the result; to be awaited on the thread of the server.

        Raises:
            TookTooLong: There is no result in time.
        """
        if self._under_way >= self._at_once_max:
            raise TookTooLong(
                f"{self._under_way} earlier requests are still waiting for an answer; try again "
                "later",
                got=self._under_way,
            )
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[T] = loop.create_future()

        def done(result: T | None, error: BaseException | None) -> None:
            self._under_way -= 1
            if answered.done():
                return
            if error is not None:
                answered.set_exception(error)
            else:
                answered.set_result(result)  # type: ignore[arg-type]

        def work() -> None:
            outcome: tuple[Any, BaseException | None]
            try:
                outcome = (call(), None)
            except BaseException as error:  # noqa: BLE001 - passed on to the request
                outcome = (None, error)
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(done, *outcome)

        self._under_way += 1
        self._workers.run(work)
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            return await asyncio.wait_for(answered, limit_s)
        except TimeoutError as error:
            if not answered.cancelled():
                raise  # raised by the call itself
            raise TookTooLong(
                f"there was no answer within {limit_s:g} s; try again later", timeout_s=limit_s
            ) from error

    def close(self) -> None:
        """Let the threads end."""
        self._workers.close()
