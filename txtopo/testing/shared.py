"""Shared: an object that stays the same one when it is pickled and read back in this process.

Spouts and bolts are copied for each task, and a test wants to talk to what runs.
"""

from __future__ import annotations

import itertools
from typing import Any
from weakref import WeakValueDictionary

_numbers = itertools.count()
_objects: WeakValueDictionary[int, Shared] = WeakValueDictionary()


class Shared:
    """A base for what a test shares with its topology. Works on the carrier ``local`` only."""

    def __reduce__(self) -> tuple[Any, ...]:
        number = self.__dict__.get("_shared_number")
        if number is None:
            number = self.__dict__["_shared_number"] = next(_numbers)
            _objects[number] = self
        return _found, (number,)


def _found(number: int) -> Shared:
    found = _objects.get(number)
    if found is None:
        raise LookupError(
            "a shared object was read in another process, or after its test had ended"
        )
    return found
