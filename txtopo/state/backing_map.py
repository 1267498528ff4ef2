"""BackingMap: the two methods of a plain key-value store.

Exactly once is not its concern: :class:`~txtopo.state.opaque_map.OpaqueMap` and
:class:`~txtopo.state.transactional_map.TransactionalMap` keep beside each value what made it, and
decide from that what a replay has to take back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, runtime_checkable


class BackingMap(ABC):
    """A key-value table in an outside store: texts by text.

    Keys and values are JSON text in ASCII without control characters, so a plug-in stores strings
    and nothing else. Keys differ in case, and may be some thousand characters long.

    Who calls it: the driver, from any thread, one call at a time for a commit; readings go on
    meanwhile. Where committers run in Spark tasks, each task opens a map of its own and reads.
    What must be durable: what :meth:`multi_put` wrote, when it returns.
    What to raise: ``ConnectionError`` or ``TimeoutError`` for what may pass, and the batch is tried
    again. Anything else ends the run. A write that has failed may be there, but must not arrive
    later, when its replay is written.
    Not guaranteed: that :meth:`close` is called (the process may be killed).
    Proof: subclass ``txtopo.testing.conformance.BackingMapSuite``.

    What a map of two methods cannot promise: a deposed coordinator is not kept out, and of two
    owners of one table, or two ensembles, that claim at the same instant both may be let in. One
    that claims later is refused.

    A map that can compare and write in one step may have a third method, see
    :class:`ComparesAndPuts`; then a deposed coordinator is kept out.
    """

    @abstractmethod
    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        """Read the values of the keys.

        Args:
            keys: Distinct, at most 10,000; may be empty.

        Returns:
            One value per key, in the order of *keys*; ``None`` where there is none.
        """

    @abstractmethod
    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        """Write the values of the keys.

        The write of one key is atomic, and durable once this returns. The keys need not be written
        together, nor in order: a batch that dies half-way is taken back and written again.

        Args:
            keys: Distinct, at most 10,000; may be empty. Nobody gives a key twice; the last value
                wins, or it is refused with a ``ValueError`` before anything is written.
            values: One per key.
        """

    def close(self) -> None:  # noqa: B027 - most maps have nothing to release
        """Release what is open; nothing, unless a plug-in needs to. Twice is harmless."""


@runtime_checkable
class ComparesAndPuts(Protocol):
    """A backing map with the optional third method, which makes the fence.

    Every key is then written by it, in a call each, so that a write based on an old reading is
    refused: a deposed coordinator changes nothing. That costs one question to the store a key.
    """

    def compare_and_put(self, key: str, expected: str | None, value: str) -> bool:
        """Write the value of *key* if it still is *expected*, in one atomic step.

        Args:
            key: The key.
            expected: What was read; ``None`` if there was nothing.
            value: What to write.

        Returns:
            Whether it was written, durably.
        """
        ...
