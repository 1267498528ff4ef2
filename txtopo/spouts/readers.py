"""Stream readers of PySpark's Python Data Sources: how one is made, and the simple kind's face."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from txtopo.errors import ConfigError, EmitError, FieldsError
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from pyspark.sql.datasource import SimpleDataSourceStreamReader
    from pyspark.sql.types import StructType

# As StructType.add reads them, where they differ from ours.
_SPARK_NAMES = {"int": "integer"}


class StreamReader(Protocol):
    """What is called of a ``DataSourceStreamReader``; its docstrings say what each means."""

    def initialOffset(self) -> Any:
        """Return where to begin."""
        ...

    def latestOffset(self, start: Any, limit: Any) -> Any:
        """Return where the batch that begins at *start* shall end."""
        ...

    def getDefaultReadLimit(self) -> Any:
        """Return how much a batch shall hold."""
        ...

    def partitions(self, start: Any, end: Any) -> Sequence[Any]:
        """Divide a range."""
        ...

    def read(self, partition: Any) -> Iterator[Any]:
        """Read a part of a range."""
        ...

    def commit(self, end: Any) -> None:
        """Hear that all up to *end* is done."""
        ...

    def stop(self) -> None:
        """Release what was opened."""
        ...


class SimpleReader:
    """A ``SimpleDataSourceStreamReader`` behind the other face.

    Its ``read`` is called in the driver to learn where a batch ends; the rows are read by
    ``readBetweenOffsets`` in a task, so that a replay reads what the first attempt did.
    """

    def __init__(self, reader: SimpleDataSourceStreamReader) -> None:
        self.wrapped = reader
        self.initialOffset = reader.initialOffset
        self.commit = reader.commit

    def latestOffset(self, start: Any, limit: Any) -> Any:
        """Read up to what there is now, and return its end.

        Raises:
            EmitError: There are rows and the end is the start, so nobody would ever read them.
        """
        rows, end = self.wrapped.read(start)
        if end == start and next(iter(rows), None) is not None:
            raise EmitError(
                f"read() of {name_of(self)} gave rows and ended where it began; got {end!r:.200} "
                "twice; expected an end behind the start whenever there are rows"
            )
        return end

    def getDefaultReadLimit(self) -> None:
        """Know no limit."""

    def partitions(self, start: Any, end: Any) -> Sequence[Any]:
        """Leave a range whole."""
        return [(start, end)]

    def read(self, partition: Any) -> Iterator[Any]:
        """Read a range."""
        return iter(self.wrapped.readBetweenOffsets(*partition))

    def stop(self) -> None:
        """Do nothing: the simple kind has no end."""


def opener(
    source: object, options: Mapping[str, str], fields: Fields | None
) -> tuple[Callable[[], Any], Fields]:
    """Return what makes a reader, picklable, and the fields of what it reads.

    Raises:
        ConfigError: The source is none, or has no fields.
    """
    from pyspark.sql import datasource as spark

    readers = (spark.DataSourceStreamReader, spark.SimpleDataSourceStreamReader)
    if isinstance(source, readers):
        if fields is None:
            raise ConfigError(
                f"a reader does not tell its fields; got {type(source).__name__} alone; expected "
                "fields=Fields(…) too"
            )
        return _Given(source), fields
    if isinstance(source, str):
        source = _named(source)
    if not (isinstance(source, type) and issubclass(source, spark.DataSource)):
        raise ConfigError(
            f"this is no source; got {source!r:.200}; expected a subclass of "
            "pyspark.sql.datasource.DataSource, its name, or a stream reader"
        )
    made_of = _FromDataSource(source, dict(options), None)
    try:
        declared = fields or Fields(made_of.source().schema())
    except FieldsError as error:
        raise ConfigError(
            f"the schema of {source.name()!r} has no fields of ours: {error}; give fields=Fields(…)"
        ) from error
    return _FromDataSource(source, dict(options), declared), declared


def modules_of(source: object) -> tuple[str, ...]:
    """Return the module that a source comes from; what is in the main script travels by value."""
    kind = _named(source) if isinstance(source, str) else source
    module = (kind if isinstance(kind, type) else type(kind)).__module__
    return () if module == "__main__" else (module,)


def made(open_reader: Callable[[], Any]) -> StreamReader:
    """Return a reader, the simple kind behind the other face."""
    from pyspark.sql.datasource import DataSourceStreamReader, SimpleDataSourceStreamReader

    reader = open_reader()
    if isinstance(reader, SimpleDataSourceStreamReader):
        return SimpleReader(reader)
    if type(reader).partitions is DataSourceStreamReader.partitions:
        raise ConfigError(
            f"{type(reader).__name__} does not divide a range; got no partitions(start, end); "
            "expected one that returns a list of InputPartition"
        )
    opened: StreamReader = reader
    return opened


def name_of(reader: StreamReader) -> str:
    """Return how a message calls a reader: as its own class, not as what stands before it."""
    return type(reader.wrapped if isinstance(reader, SimpleReader) else reader).__name__


def takes_limit(reader: StreamReader) -> bool:
    """Return whether ``latestOffset`` takes a start and a limit, as since PySpark 4.2."""
    try:
        inspect.signature(reader.latestOffset).bind({}, None)
    except TypeError:
        return False
    return True


class _Given:
    """A reader that was given as it is."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def __call__(self) -> Any:
        return self._reader


class _FromDataSource:
    """Makes the reader of a ``DataSource``."""

    def __init__(self, kind: Any, options: dict[str, str], fields: Fields | None) -> None:
        self._kind, self._options, self._fields = kind, options, fields

    def source(self) -> Any:
        """Return the source, with options whose names are in any case, as Spark gives them."""
        from pyspark.sql.datasource import CaseInsensitiveDict

        return self._kind(CaseInsensitiveDict(self._options))

    def __call__(self) -> Any:
        from pyspark.errors import PySparkNotImplementedError

        source, schema = self.source(), _struct_type(self._fields)
        try:
            return source.streamReader(schema)
        except PySparkNotImplementedError:
            pass
        try:
            return source.simpleStreamReader(schema)
        except PySparkNotImplementedError as error:
            raise ConfigError(
                f"data source {source.name()!r} cannot be read as a stream; got "
                f"{self._kind.__name__} without a stream reader; expected streamReader(schema) or "
                "simpleStreamReader(schema)"
            ) from error


def _struct_type(fields: Fields | None) -> StructType:
    from pyspark.sql.types import StructType

    schema = StructType()
    for field in fields or ():
        schema = schema.add(field.name, _SPARK_NAMES.get(field.type, field.type))
    return schema


def _named(name: str) -> type:
    """Return the imported ``DataSource`` of this name; Spark's own registry needs a session."""
    from pyspark.sql.datasource import DataSource

    kinds = [DataSource]
    for kind in kinds:
        kinds += kind.__subclasses__()
    known = {kind.name(): kind for kind in kinds[1:]}
    if name not in known:
        raise ConfigError(
            f"no data source of this name is imported; got {name!r}; expected one of "
            f"{', '.join(sorted(known)) or 'none'}; import its module first, or give the class"
        )
    return known[name]
