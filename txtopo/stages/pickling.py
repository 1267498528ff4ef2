"""Prototype: a user's object, of which each task has copies; dumps and loads: its way to workers.

A bolt may be defined in ``__main__`` or in a notebook cell, where workers cannot import its class.
So the class is pickled by value, with the cloudpickle of PySpark. Pickles are only sent between the
driver and its own workers. They are never written to a store or to ZooKeeper.

A pickle by value has copies of the globals that its functions name, and unpickling it replaces the
methods of the class in this process by ones that use these copies. So :func:`loads` never reads in
a process what :func:`dumps` has made there. A copy for the same process comes from a
:class:`Prototype`.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from types import FunctionType, ModuleType
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


def dumps(value: object) -> bytes:
    """Pickle an object for a worker, and its class if workers cannot import it."""
    from pyspark import cloudpickle

    pickled: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return pickled


def loads(pickled: bytes) -> Any:
    """Unpickle an object that :func:`dumps` or :func:`pack` pickled."""
    return pickle.loads(pickled)  # noqa: S301 - made by this program's own driver or workers


def pack(value: object) -> bytes:
    """Pickle an object of txtopo's own classes. This is ten times faster than :func:`dumps`."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def by_value(module: ModuleType) -> None:
    """Pickle the classes and functions of a module by value, as those of ``__main__``."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    _BY_VALUE.add(module.__name__)


_BY_VALUE = {"__main__"}


def travels_by_value(function: FunctionType) -> bool:
    """Return whether a function of a module travels to workers by value, with its globals."""
    return function.__module__ in _BY_VALUE


class Prototype(Generic[T]):
    """A user's object, as it was when the topology was built; each task gets a copy of it.

    Copies share classes, functions and modules with the object that they are made of, as those of
    ``copy.deepcopy`` do. So in the driver a bolt uses the globals of the user's script themselves.
    Each worker has one copy of these globals for each component, and what a bolt stores in that one
    does not come back.

    A prototype that is pickled goes to a worker, which unpickles it when it makes the first copy.
    """

    __slots__ = ("_here", "_original", "_sent")

    def __init__(self, original: T) -> None:
        self._original = original
        self._here: _Here | None = _Here(original)
        self._sent = b""

    def copy(self) -> T:
        """Return a new copy. It raises whatever the user's own ``__setstate__`` raises."""
        if self._here is None:
            self._original = loads(self._sent)
            self._here = _Here(self._original)
        return cast("T", self._here.copy())

    @property
    def shared(self) -> Sequence[object]:
        """The classes, functions and modules that copies in this process share."""
        return () if self._here is None else self._here.kept

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        """Return the pickled form in which a prototype goes to a worker."""
        return _arrived, (self._sent or dumps(self._original),)


def _arrived(sent: bytes) -> Prototype[Any]:
    prototype: Prototype[Any] = Prototype.__new__(Prototype)
    prototype._here, prototype._sent = None, sent
    return prototype


class _Here:
    """An object, pickled to be copied within this process.

    Its copies share the classes, functions and modules of the original.
    """

    def __init__(self, original: object) -> None:
        from pyspark import cloudpickle

        kept: list[object] = []
        places: dict[int, int] = {}

        class Pickler(cloudpickle.Pickler):
            def persistent_id(self, part: object) -> int | None:
                if not isinstance(part, FunctionType | ModuleType | type):
                    return None
                place = places.setdefault(id(part), len(kept))
                if place == len(kept):
                    kept.append(part)
                return place

        file = io.BytesIO()
        Pickler(file).dump(original)  # type: ignore[no-untyped-call]
        self._pickled, self.kept = file.getvalue(), kept

    def copy(self) -> object:
        unpickler = _Unpickler(io.BytesIO(self._pickled))
        unpickler.kept = self.kept
        return unpickler.load()


class _Unpickler(pickle.Unpickler):
    kept: list[object]

    def persistent_load(self, place: int) -> object:
        """Return an object that was left out of the pickle."""
        return self.kept[place]
