"""FileSpout: the lines of files, each at least once."""

from __future__ import annotations

import glob
import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from txtopo.collector import SpoutOutputCollector
from txtopo.config import Config, check_text
from txtopo.context import TaskContext
from txtopo.errors import FieldsError, SourceDataLost
from txtopo.spouts.reliable import Spout
from txtopo.tuples import Fields

MessageId = tuple[str, int]
"""(path of the file, number of the line from 1)."""


class FileSpout(Spout):
    """Emits each line of some text files, and again when it failed. The files must not change.

    Delivery: at least once. It keeps no position: a run that is started anew, and a task that was
    lost, begin at the first line again. With several tasks, each reads files of its own.

    What was emitted is kept in memory until it is acked: give ``Config.max_spout_pending``.

    Args:
        paths: A file, a pattern such as ``logs/*.txt``, or several of them.
        encoding: Encoding of the files.

    Raises:
        SourceDataLost: No file matches, when the run starts.
        FieldsError: A line cannot be decoded; it ends the run.
    """

    output_fields = Fields("line string, path string, number long")

    def __init__(self, paths: str | os.PathLike[str] | Sequence[str], encoding: str = "utf-8"):
        single = isinstance(paths, str | os.PathLike)
        self._paths = [os.fspath(paths)] if single else list(map(os.fspath, paths))  # type: ignore[arg-type]
        for path in self._paths:
            check_text("a path of a file spout", path)
        self._encoding = encoding

    def open(self, config: Config, context: TaskContext, collector: SpoutOutputCollector) -> None:
        """Find the files of this task."""
        files = sorted({name for path in self._paths for name in glob.glob(path)})
        if not files:
            raise SourceDataLost(
                f"spout {context.component_id!r} found no file; got {', '.join(self._paths)}; "
                "expected paths or patterns of files that exist; look at the working directory"
            )
        self._collector = collector
        self._lines = self._read(files[context.task_index :: context.tasks])
        self._open: dict[MessageId, str] = {}
        self._again: deque[MessageId] = deque()

    def next_tuple(self) -> None:
        """Emit what failed first, else the next line."""
        if self._again:
            id = self._again.popleft()
            self._collector.emit([self._open[id], *id], id)
            return
        for id, line in self._lines:
            self._open[id] = line
            self._collector.emit([line, *id], id)
            return

    def ack(self, message_id: Any) -> None:
        """Forget the line."""
        del self._open[message_id]

    def fail(self, message_id: Any) -> None:
        """Emit the line again."""
        self._again.append(message_id)

    def _read(self, files: Sequence[str]) -> Iterator[tuple[MessageId, str]]:
        for path in files:
            with open(path, "rb") as file:
                for number, line in enumerate(file, 1):
                    yield (path, number), self._decoded(path, number, line)

    def _decoded(self, path: str, number: int, line: bytes) -> str:
        try:
            return line.rstrip(b"\r\n").decode(self._encoding)
        except UnicodeDecodeError as error:
            raise FieldsError(
                f"line {number} of {path} cannot be decoded; got {line[:80]!r}; expected "
                f"{self._encoding}; give FileSpout(…, encoding=…)",
                path=path,
                line=number,
            ) from error
