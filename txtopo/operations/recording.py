"""Recording: the tuples that each component received and emitted, and what its code raised."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from txtopo.stages import bolt_tasks
from txtopo.tuples import Tuple

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.stages.mailboxes import Arrival


_PACKAGE = f"{Path(__file__).parents[1]}/"


@dataclass(slots=True)
class ComponentTuples:
    """The tuples of one component.

    Attributes:
        received: Those of each stream, by ``component.stream``, in the order of its tasks.
        emitted: Those of each of its own streams.
    """

    received: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    emitted: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Raised:
    """What user code raised.

    Attributes:
        component: Id of the component.
        error: The exception, with its traceback.
        row: The tuple that was being processed, by field; None if it is not known.
        source: The stream of the tuple, as ``component.stream``.
    """

    component: str
    error: BaseException
    row: dict[str, Any] | None = None
    source: str | None = None

    @property
    def traceback(self) -> TracebackType | None:
        """The traceback of the user's code: without the frames of txtopo at both ends."""
        found = list(_tracebacks(self.error))
        ours = [each.tb_frame.f_code.co_filename.startswith(_PACKAGE) for each in found]
        if all(ours):
            return self.error.__traceback__
        first, last = ours.index(False), len(ours) - ours[::-1].index(False)
        users: TracebackType | None = None
        for each in reversed(found[first:last]):
            users = TracebackType(users, each.tb_frame, each.tb_lasti, each.tb_lineno)
        return users

    @property
    def text(self) -> str:
        """The traceback of the user's code, as text."""
        parts = traceback.format_exception(type(self.error), self.error, self.traceback)
        return "".join(parts).rstrip()


class Recording:
    """The :class:`~txtopo.stages.observer.Observer` of a replay.

    Attributes:
        components: The tuples of each component.
        raised: The first exception; None for none.
    """

    def __init__(self) -> None:
        self.components: dict[str, ComponentTuples] = {}
        self.raised: Raised | None = None

    def clear(self) -> None:
        """Forget everything, before the next txid."""
        self.components, self.raised = {}, None

    def received(self, component: str, arrivals: Sequence[Arrival]) -> None:
        """Keep the tuples that a task received."""
        streams = self._of(component).received
        for each in arrivals:
            stream = f"{each.edge.source}.{each.edge.stream}"
            streams.setdefault(stream, []).append(each.batch)

    def emitted(self, component: str, stream: str, batch: pa.RecordBatch) -> None:
        """Keep the tuples that a task emitted."""
        self._of(component).emitted.setdefault(stream, []).append(batch)

    def failed(self, component: str, error: BaseException) -> None:
        """Keep the first exception, and the tuple that was being processed."""
        if self.raised is None:
            found = _processed(error)
            source = None if found is None else f"{found.source_component}.{found.source_stream}"
            row = None if found is None else {name: found[name] for name in found.fields.names}
            self.raised = Raised(component, error, row, source)

    def _of(self, component: str) -> ComponentTuples:
        return self.components.setdefault(component, ComponentTuples())


def _processed(error: BaseException) -> Tuple | None:
    """Return the tuple that a task of a bolt was processing, from the frames of its loop."""
    for each in _tracebacks(error):
        if each.tb_frame.f_code.co_filename == bolt_tasks.__file__:
            found = each.tb_frame.f_locals.get("each")
            if isinstance(found, Tuple):
                return found
    return None


def _tracebacks(error: BaseException) -> Iterator[TracebackType]:
    at = error.__traceback__
    while at is not None:
        yield at
        at = at.tb_next
