"""Lookups: outside tables that streams are joined with, at a version that a replay repeats.

The driver looks for the newest version when it plans a batch, and stores it with the plan
(:mod:`txtopo.runtime.stamp_planner`). Before that it reads the version, since a planned txid could
never get rid of an unusable version, such as one with a duplicate key. Tasks read the rows of that
version, once per process, and keep them in memory. So all rows of a txid see the same version, in
every attempt, even if the table has changed. Only later txids see a later version.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.attempt import TransactionAttempt
from txtopo.collector import ArrowOutputCollector
from txtopo.context import TaskContext
from txtopo.durations import Duration, duration
from txtopo.errors import ConfigError, TopologyError
from txtopo.metadata import Json
from txtopo.servers import Server
from txtopo.streams.checks import check_new_columns, declared_fields
from txtopo.streams.lookup_sources import DeltaLookup, LookupSource, keys_of
from txtopo.streams.operators import Operator
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from txtopo.streams.draft import Draft

VERSIONS_KEPT = 2
"""How many versions of a table a process keeps; a replay may need the second newest one."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Lookup:
    """An external table to join streams with; ``StreamBuilder.lookup`` returns it.

    Attributes:
        draft: The program that it belongs to.
        table: What is read.
    """

    draft: Draft
    table: LookupTable

    @property
    def name(self) -> str:
        """The id of the lookup."""
        return self.table.id

    def __repr__(self) -> str:
        return f"Lookup({self.name!r}, {', '.join(self.table.key)} -> {self.table.value!r})"


@dataclass(frozen=True, slots=True)
class LookupTable:
    """What a lookup reads, and the types of its columns. Picklable.

    Attributes:
        id: Id of the lookup.
        source: Where its rows are.
        key: Its key columns.
        value: Its other columns.
        refresh_s: How long a version is used before a newer one is looked for.
        key_fields: The key columns with the types of the joined stream.
    """

    id: str
    source: LookupSource
    key: tuple[str, ...]
    value: Fields
    refresh_s: float
    key_fields: Fields = field(default_factory=lambda: Fields.of([]))

    @property
    def client_modules(self) -> Sequence[str]:
        """The modules that tasks import to read the table."""
        return self.source.client_modules

    @property
    def connects_to(self) -> Sequence[Server]:
        """The server that has the table; none for files."""
        return self.source.connects_to

    def check(self) -> None:
        """Check that the columns of the lookup can be read."""
        with self._named():
            self.source.check(self._fields)

    def knows(self, version: Json) -> bool:
        """Return whether a stored version belongs to this source."""
        return isinstance(version, dict) and version.get("source") == self._digest

    def newest(self, held: Json, time_ms: int) -> Json:
        """Return the newest version, after checking that it can be read; see ``VersionedTable``."""
        known = None if held is None else cast("dict[str, Json]", held)["version"]
        with self._named():
            newest = self.source.newest(self._fields, known, time_ms)
        version: Json = {"source": self._digest, "version": newest}
        if version != held:
            self.loaded(version)
        return version

    def loaded(self, version: Json) -> LoadedLookup:
        """Return the rows of a stored version; read them if this process does not hold them.

        Raises:
            SourceDataLost: The version is gone, or has changed.
            ConfigError: A column does not fit, or a key occurs twice.
            InfrastructureError: The source cannot be reached; try again.
        """
        version = cast("dict[str, Json]", version)["version"]
        name = json.dumps(version, sort_keys=True)
        with _lock:
            place = self.id, self._digest, repr((self.key_fields, self.value))
            held = _loaded.setdefault(place, OrderedDict())
            if name not in held:
                with self._named():
                    rows = self.source.read(version, self.key_fields, self.value)
                    held[name] = self._indexed(rows, self.source.shown(version))
                while len(held) > VERSIONS_KEPT:
                    held.popitem(last=False)
            held.move_to_end(name)
            return held[name]

    @property
    def _digest(self) -> str:
        source = f"{type(self.source).__name__} {self.source.identity}"
        return hashlib.sha256(source.encode()).hexdigest()[:16]

    @property
    def _fields(self) -> Fields:
        return Fields.of([*self.key_fields, *self.value])

    def _indexed(self, rows: pa.Table, shown: str) -> LoadedLookup:
        keys, single = keys_of(rows, self.key), len(self.key) == 1
        places: dict[Any, int] = {}
        for place, key in enumerate(keys):
            # NULL equals nothing, so such a row never matches.
            if key is None or (not single and None in key):
                continue
            if places.setdefault(key, place) != place:
                raise ConfigError(
                    f"key {key!r} occurs twice in {shown}; expected each key once, because a row "
                    "of the stream matches one row of the lookup; add key columns, or repair the "
                    "table",
                    name=shown,
                    key=repr(key),
                )
        columns = [rows.column(name).combine_chunks() for name in self.value.names]
        return LoadedLookup(places, columns)

    def _named(self) -> _Named:
        return _Named(self.id)


@dataclass(frozen=True, slots=True)
class LoadedLookup:
    """The rows of one version.

    Attributes:
        places: The row number of each key.
        columns: The value columns.
    """

    places: Mapping[Any, int]
    columns: Sequence[pa.Array]


# The versions that this process keeps. Prototypes are unpickled for each task of each attempt.
_loaded: dict[tuple[str, str, str], OrderedDict[str, LoadedLookup]] = {}

# Locked while rows are read, so that concurrent tasks read them once.
_lock = threading.Lock()


class _Named:
    """Adds a note with the lookup's id to an error."""

    def __init__(self, id: str) -> None:
        self._id = id

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if error is not None:
            error.add_note(f"in lookup {self._id!r}")


@dataclass(frozen=True)
class JoinLookup(Operator):
    """Adds to each row the values that a lookup has for its key.

    Attributes:
        table: The lookup.
        on: The columns of the stream that are compared with the key.
        keeps: Whether a row without a match is kept, with NULL values.
        version: The version, once the operator is bound to a batch.
    """

    table: LookupTable
    on: tuple[str, ...]
    keeps: bool
    version: Json = None
    word = "join"

    @property
    def told(self) -> str:
        """The word, and the lookup."""
        return f"{self.word} {self.table.id}"

    @property
    def lookups(self) -> Mapping[str, LookupTable]:
        """The table whose version is planned with each batch."""
        return {self.table.id: self.table}

    def bound(self, context: TaskContext, collector: ArrowOutputCollector) -> JoinLookup:
        """Return this operator for a batch: with the version of its plan."""
        return replace(self, version=context.versions[self.table.id])

    def apply(self, batch: pa.RecordBatch, attempt: TransactionAttempt) -> Iterator[pa.RecordBatch]:
        """Look up the key of each row."""
        found = self.table.loaded(self.version)
        keys = keys_of(batch, self.on)
        places = pa.array([found.places.get(key) for key in keys], pa.int64())
        if not self.keeps:
            matched = pc.is_valid(places)
            batch, places = batch.filter(matched), places.filter(matched)
        values = [column.take(places) for column in found.columns]
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, *values], schema=self.fields.arrow_schema()
        )


def declared_lookup(
    id: str, source: object, key: object, value: object, refresh: Duration
) -> LookupTable:
    """Return the table that a lookup reads.

    Raises:
        TopologyError: An argument is wrong; the message says which.
    """
    operator = f"lookup {id!r}"
    names = (key,) if isinstance(key, str) else key
    if not isinstance(names, Sequence) or not all(isinstance(each, str) and each for each in names):
        raise TopologyError(
            f"the key of {operator} is wrong; got {key!r:.100}; expected the name of a column, or "
            "a list of names",
            name=operator,
            setting="key",
        )
    if not names or len(set(names)) < len(names):
        raise TopologyError(
            f"the key of {operator} is wrong; got {key!r:.100}; expected distinct names, at least "
            "one",
            name=operator,
            setting="key",
        )
    values = declared_fields(operator, value)
    for name in names:
        if name in values.index:
            raise TopologyError(
                f"{operator} has column {name!r} twice; got it in key= and value=; remove it from "
                "value=; the stream already has it",
                field=name,
            )
    refresh_s = duration(f"refresh of {operator}", refresh, zero=True).total_seconds()
    return LookupTable(id, _source_of(operator, source), tuple(names), values, refresh_s)


def joined_with(
    operator: str, table: LookupTable, stream: Fields, on: tuple[str, ...]
) -> tuple[LookupTable, Fields]:
    """Return a lookup with the types of its key, and the fields of the joined stream.

    Raises:
        FieldsError: A column would occur twice.
        TopologyError: The number of columns differs from that of the key.
    """
    if len(on) != len(table.key):
        raise TopologyError(
            f"{operator} compares {len(on)} columns with the {len(table.key)} of the key of lookup "
            f"{table.id!r}; got on={on}; expected one for each of {', '.join(table.key)}, in order",
            name=operator,
            got=len(on),
        )
    kinds = [stream[stream.index[name]].type for name in on]
    pairs = ", ".join(f"{name} {kind}" for name, kind in zip(table.key, kinds, strict=True))
    return replace(table, key_fields=Fields(pairs)), check_new_columns(
        operator, stream, table.value
    )


def _source_of(operator: str, source: object) -> LookupSource:
    if isinstance(source, LookupSource):
        return source
    if isinstance(source, os.PathLike) or not isinstance(source, str):
        source = repr(source)
    elif source.startswith("delta://"):
        return DeltaLookup(source.removeprefix("delta://"))
    raise TopologyError(
        f"the source of {operator} cannot be read; got {source!r:.100}; expected "
        "'delta:///folder', DeltaLookup(path), QueryLookup(url, query, as_of=…, settle_s=…) or "
        "FilesLookup(glob): a source with versions that a replay can read again",
        name=operator,
    )
