"""The spouts that read files: FilesTransactionalSpout, and FileSpout for lines at least once."""

from __future__ import annotations

import glob
import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from txtopo.config import AtLeastOnceConfig, ChangeKind, Config
from txtopo.context import TaskContext
from txtopo.errors import ConfigError, FieldsError, SourceDataLost
from txtopo.instead import known_arguments
from txtopo.reliable.collector import SpoutOutputCollector
from txtopo.reliable.spout import Spout
from txtopo.setting_checks import check_text
from txtopo.sources.files.planning import BATCH_BYTES_MAX, FilesCoordinator, Limits, Order
from txtopo.sources.files.reading import FilesEmitter
from txtopo.sources.files.source import FileFormat, FileSource, FormatName
from txtopo.spouts.spout import (
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
    check_min_batch_rows,
)
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from pyarrow import fs


class FilesTransactionalSpout(TransactionalSpout):
    """Reads a folder, a glob or a list of files, and the files that appear there later.

    Delivery: transactional. Each file is read exactly once, and a replayed batch has the same rows.
    A file that is changed or removed before its rows are committed stops the run with
    ``SourceDataLost``, until it is restored unchanged.

    Files are read in the order of their names (or times). A file that appears later is read after
    those that were found before, even if its name sorts before theirs. A file must be complete when
    it appears under its name, because it is read only once, even if it changes afterwards. Write it
    elsewhere, or under a name that begins with ``_`` or ``.``, and rename it.
    :mod:`txtopo.sources.files.planning` explains how the spout knows which files were read.

    A file is identified by its path; links in it are not resolved. A folder given under two names
    is refused. A link in a folder that points to that folder or to a parent is not followed. The
    run ends with ``TopologyChanged`` if other folders replace those that were read, and none of the
    files in them was read: they may be the same files, moved. If they are other files, keep the
    earlier paths in the list as well, or start once with ``Config(allow_change=['source'])``.

    ``Progress.lag`` shows how many ``files`` and ``bytes`` were found but not read yet. The files
    are listed again once all files found so far are planned, and while a batch waits for
    ``Pace(min_batch_rows=…)``.

    Batches are planned in the driver, from sizes and times only. A limit in rows makes the driver
    read Parquet footers, or the lines of the files. Files of lines are divided at any byte, so a
    CSV value contains a newline only with *multiline*. Compressed files of lines (``.gz``,
    ``.bz2``, ``.zst``), and all files with *multiline*, are not divided.

    Columns are matched by name: the header of a CSV file (or the order, without a header), the keys
    of a JSON object, the columns of a Parquet file. Other columns are not read. A file that has one
    of the columns twice ends the run. In JSON and CSV bytes are base64, and dates and times are
    ISO 8601, as ``txtopo state export`` writes them.

    Args:
        paths: A folder (including subfolders), a file, a glob (``**`` crosses folders), or several
            of these; local, or URLs such as ``s3://bucket/folder``.
        fields: The fields; for text, one string.
        format: ``"csv"``, ``"json"`` (one object per line), ``"text"`` or ``"parquet"``.
        batch_rows_max: Maximum rows of a batch.
        batch_bytes_max: Maximum bytes of a batch; 64 MiB if no limit is given.
        batch_files_max: Maximum files of a batch, never more than 256. If it is the only limit,
            batches consist of whole files, and if a batch has at least as many files as there are
            partitions, the driver reads nothing to plan it.
        partitions: The number of parts of a batch; by default the tasks of the spout.
        filesystem: A ``pyarrow.fs.FileSystem`` or its URL; None for local paths and URLs.
        order: ``"name"``, or ``"time"`` (modification time, then name).
        header: CSV: whether each file begins with the names of its columns.
        delimiter: CSV: the separator of values.
        null_values: CSV: unquoted texts that mean NULL.
        multiline: CSV: whether a quoted value may contain line breaks. Then a file is in one batch
            as a whole, whatever the limits, and one task reads it.

    Raises:
        ConfigError: An argument is wrong; repair it.
    """

    ends = True

    @known_arguments
    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str],
        fields: Fields,
        format: FormatName = "csv",
        *,
        batch_rows_max: int | None = None,
        batch_bytes_max: int | None = None,
        batch_files_max: int | None = None,
        partitions: int | None = None,
        filesystem: fs.FileSystem | str | None = None,
        order: Order = "name",
        header: bool = True,
        delimiter: str = ",",
        null_values: Sequence[str] = ("",),
        multiline: bool = False,
    ) -> None:
        self._format = FileFormat(format, header, delimiter, tuple(null_values), multiline)
        self._format.check_fields(fields)
        if partitions is not None and (type(partitions) is not int or partitions < 1):
            raise ConfigError(
                f"partitions is wrong; got {partitions!r}; expected a whole number of at least 1",
                setting="partitions",
            )
        if order not in ("name", "time"):
            raise ConfigError(
                f"unknown order of files; got {order!r}; expected 'name' or 'time'", setting="order"
            )
        if (batch_rows_max, batch_bytes_max, batch_files_max) == (None, None, None):
            batch_bytes_max = BATCH_BYTES_MAX
        self._limits = Limits(batch_rows_max, batch_bytes_max, batch_files_max)
        self.output_fields = fields
        self._source = FileSource(paths, filesystem)
        self._partitions = partitions
        self._order: Order = order

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        """Make the planning part.

        Raises:
            ConfigError: A named folder or file does not exist; create it first. Or two paths are
                the same folder, by a link; give one of them. Or a batch cannot have
                ``min_batch_rows``.
        """
        self._source.check()
        if self._limits.rows is not None:
            check_min_batch_rows(config, self._limits.rows)
        return FilesCoordinator(
            self._source,
            self._format,
            self._limits,
            self._partitions or context.tasks,
            self._order,
            may_change=config.may_change(ChangeKind.SOURCE),
            gathers=config.pace.min_batch_rows is not None,
        )

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        """Make an emitting part."""
        assert self.output_fields is not None
        return FilesEmitter(self._source, self._format, self.output_fields, context)


MessageId = tuple[str, int]
"""(path of the file, number of the line from 1)."""


class FileSpout(Spout):
    """Emits each line of some text files, and re-emits it if it fails. The files must not change.

    Delivery: at least once. It stores no position: a new run, and a task that was lost, start again
    at the first line. With several tasks, each reads its own files.

    Lines are kept in memory until they are acked, so set
    ``AtLeastOnceConfig.max_spout_pending``.

    Args:
        paths: A file, a pattern such as ``logs/*.txt`` (``**`` crosses folders), or several of
            them. A file that is listed or matched several times is read once.
        encoding: Encoding of the files; a line must end with the byte 0x0A in it.

    Raises:
        ConfigError: An argument is wrong, or, when the run starts, a path is a folder; repair it.
        SourceDataLost: When the run starts, a named file does not exist, or no file matches.
        FieldsError: A line cannot be decoded; it ends the run.
    """

    output_fields = Fields("line string, path string, number long")

    def __init__(self, paths: str | os.PathLike[str] | Sequence[str], encoding: str = "utf-8"):
        self._paths = _checked_paths(paths)
        self._encoding = _checked_encoding(encoding)

    def open(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: SpoutOutputCollector
    ) -> None:
        """Find the files of this task."""
        names = sorted((name for path in self._paths for name in self._found(path)), reverse=True)
        # One file may have several names: links, and other paths to its folder.
        files = sorted({os.path.realpath(name): name for name in names}.values())
        if not files:
            raise SourceDataLost(
                f"spout {context.component_id!r} found no file; got {', '.join(self._paths)}; "
                "expected paths or patterns of existing files; check the working directory",
                component=context.component_id,
                got=tuple(self._paths),
            )
        self._collector = collector
        self._lines = self._read(files[context.task_index :: context.tasks])
        self._open: dict[MessageId, str] = {}
        self._again: deque[MessageId] = deque()

    def next_tuple(self) -> None:
        """Emit a failed line, otherwise the next one."""
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

    def _found(self, path: str) -> list[str]:
        """Return the files of a path; a name that exists is not a pattern."""
        if os.path.isdir(path):
            raise ConfigError(
                f"a path of a FileSpout is a folder; got {path!r}; expected a file or a pattern; "
                f"give {os.path.join(path, '**', '*')!r} for all files below it",
                path=path,
            )
        if os.path.exists(path):
            return [path]
        if not glob.has_magic(path):
            raise SourceDataLost(
                f"a FileSpout found no file {path!r}; expected an existing file; check its "
                f"spelling and the working directory, {os.getcwd()!r}",
                path=path,
            )
        return [name for name in glob.glob(path, recursive=True) if not os.path.isdir(name)]

    def _read(self, files: Sequence[str]) -> Iterator[tuple[MessageId, str]]:
        for path in files:
            with open(path, "rb") as file:
                shown = path.encode(errors="backslashreplace").decode()
                for number, line in enumerate(file, 1):
                    yield (shown, number), self._decoded(shown, number, line)

    def _decoded(self, path: str, number: int, line: bytes) -> str:
        try:
            return line.removesuffix(b"\n").removesuffix(b"\r").decode(self._encoding)
        except UnicodeDecodeError as error:
            raise FieldsError(
                f"line {number} of {path} cannot be decoded; got {line[:80]!r}; expected "
                f"{self._encoding}; pass FileSpout(…, encoding=…)",
                path=path,
                line=number,
            ) from error


def _checked_paths(paths: object) -> list[str]:
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    whole = isinstance(several, Sequence) and not isinstance(several, bytes) and several
    if not whole or not all(isinstance(each, str | os.PathLike) for each in whole):
        raise ConfigError(
            f"the paths of a FileSpout are wrong; got {paths!r}; expected a path, a pattern such "
            "as 'logs/*.txt', or a list of them",
            setting="paths",
        )
    names = [os.fspath(each) for each in whole]
    for name in names:
        check_text("a path of a file spout", name)
    return names


def _checked_encoding(encoding: object) -> str:
    try:
        fits = isinstance(encoding, str) and b"\n".decode(encoding) == "\n"
    except (LookupError, ValueError):
        fits = False
    if not fits:
        raise ConfigError(
            f"the encoding of a FileSpout is wrong; got {encoding!r}; expected one that Python "
            "knows and in which a line ends with the byte 0x0A, such as 'utf-8' or 'latin-1'",
            setting="encoding",
        )
    return str(encoding)
