"""Instead: what to write instead of a name that other frameworks have, and txtopo has not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, ClassVar, ParamSpec

from txtopo.errors import nearest

P = ParamSpec("P")

# What Spark, Kafka's and databases' clients call it, and what one would guess.
_SIZES = frozenset(
    [
        "take",
        "batch_size",
        "batchSize",
        "batch_records_max",
        "max_batch_size",
        "max_poll_records",
        "rows_max",
        "rows_per_batch",
        "fetchsize",
        "fetch_size",
        "maxOffsetsPerTrigger",
        "maxFilesPerTrigger",
        "maxRowsPerTrigger",
        "max_offsets_per_trigger",
        "max_files_per_trigger",
    ]
)


class Instead:
    """A class whose objects say what to write instead of an attribute that they do not have."""

    __slots__ = ()
    _instead: ClassVar[Mapping[str, str]] = {}
    """What to write, by the name that is missing."""

    if not TYPE_CHECKING:  # mypy would take every attribute for one that exists

        def __getattr__(self, name: str) -> object:
            raise AttributeError(no_attribute(self, name, type(self)._instead.get(name)))


def no_attribute(owner: object, name: str, written: str | None) -> str:
    """Return the message for a missing attribute; *written* is what to write instead, if known."""
    hint = f"; write {written}" if written else ""
    return f"{type(owner).__name__!r} object has no attribute {name!r}{hint}"


def known_arguments(init: Callable[P, None]) -> Callable[P, None]:
    """Decorate an ``__init__`` with *batch_rows_max*: an unknown argument gets a hint.

    Python's own message has one from 3.13 on, and only for names that are similar.
    """
    known = [name for name in signature(init).parameters if name != "self"]

    @wraps(init)
    def checked(*arguments: P.args, **named: P.kwargs) -> None:
        for name in named:
            if name not in known:
                size = "the most rows of a batch are batch_rows_max=…"
                raise TypeError(
                    f"{type(arguments[0]).__name__} has no argument {name!r}; "
                    f"{size if name in _SIZES else nearest(name, known)}"
                )
        init(*arguments, **named)

    return checked
