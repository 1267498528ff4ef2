"""Creates, checks and lists the tables of states in Delta, and packs a ledger into one integer.

The ledger is the last transaction of an application id, ``<topology>/<state>``. Delta keeps the
version of the last transaction for each application id, and refuses a commit that was prepared
before another commit of the same id. The id never contains the epoch, so that a claim fences every
predecessor. The version packs (epoch, txid, number), which grow in this order. The number of a
claim is 0; the number of an attempt in the claim's epoch is its own plus one. Delta for Spark skips
a merge silently if the table has its version or a later one, so the first attempt after a claim
must have a larger version.

The attempt and epoch that wrote the txid are in the custom metadata of the same commit. If that
part of the log is gone, the writer is unknown and taken as epoch 0: then a restart does not adopt
the txid but redoes it, which is always right. Owner and ensemble are in the metadata too, and in
properties of the table, for when the log is gone. While the log is there, it decides: the ensemble
in it identifies a write that was prepared under an earlier claim and that Delta admitted.

The first txid of a group is in the metadata as well. A group that ZooKeeper does not record as
committed can only be redone with its bounds, so without them a restart ends with
``StoreAheadOfCoordinator``. That happens only if the topology died at exactly that point, and was
down until the log was gone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from state_backends.delta.durability import sync_made
from state_backends.delta.evolution import change_of
from state_backends.delta.failures import FAILURES, translated
from state_backends.delta.layout import (
    COMPONENT,
    DECLARATION,
    ENSEMBLE,
    LOG,
    OWNER,
    STATE,
    STATISTICS,
    WRITER_EPOCH,
    WRITER_TERM,
    Layout,
    Location,
    table_name,
)
from state_backends.delta.library import CommitProperties, DeltaError, DeltaTable, Transaction
from txtopo.errors import SchemaDrift, SchemaVersionError, ValueRefusedError
from txtopo.plugins.stores import (
    LEDGER_SCHEMA,
    Ledger,
    StateTable,
    listed_states,
    parsed_declaration,
)

_RETENTION = "delta.setTransactionRetentionDuration"

_RETENTION_DAYS_MIN = 30
"""A topology that was stopped for this long still finds its ledger when it is restarted."""

_DAYS = re.compile(r"interval (\d+) (day|week|month|year)s?", re.I)

_DAYS_OF = {"day": 1, "week": 7, "month": 30, "year": 365}


def create_table(location: Location, layout: Layout, name: str) -> None:
    """Create the table if it is missing.

    Args:
        location: The folder of all states.
        layout: The columns.
        name: The state and its store, for messages.

    Raises:
        SchemaDrift: The existing table does not fit the state.
    """
    uri, options = location.table(layout.state.name), location.options or None
    if location.local:
        _check_folder(uri, name)
    if not DeltaTable.is_deltatable(uri, options):
        _check_around(location, name)
        if location.local:
            folder = Path(uri)
            missing = [path for path in (folder, *folder.parents) if not path.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            sync_made(missing)
        try:
            DeltaTable.create(
                uri,
                layout.schema,
                mode="error",
                description=f"state {layout.state.name} of txtopo",
                configuration=layout.properties,
                storage_options=options,
                raise_if_key_not_exists=False,
            )
            return
        except DeltaError:
            # Another process may have created it meanwhile.
            if not DeltaTable.is_deltatable(uri, options):
                raise
    _check(DeltaTable(uri, storage_options=options), layout, name)


def _check_folder(uri: str, name: str) -> None:
    """Refuse a path that contains other files, which would be mixed with the table."""
    folder = Path(uri)
    _check_folded(folder, name)
    strangers = [folder.name] if folder.exists() and not folder.is_dir() else []
    if folder.is_dir():
        # The log may exist without a version: its creator died, or is still creating the table.
        strangers = sorted(path.name for path in folder.iterdir() if path.name != LOG)
    if strangers and not (folder.is_dir() and DeltaTable.is_deltatable(uri)):
        raise SchemaDrift(
            f"{name} cannot be created: its folder is in use and is not a Delta table; got "
            f"{', '.join(strangers[:5])}; expected nothing there; nothing was written; move its "
            "content away, or give the state another table or folder",
            store=name,
            got=tuple(strangers[:5]),
        )


def _check_folded(folder: Path, name: str) -> None:
    """Refuse a folder of another state, which a link or a disk that ignores case may lead to."""
    alike = [path for path in folder.parent.glob("*") if path.name.lower() == folder.name.lower()]
    if folder in alike and not folder.is_symlink():
        return
    for other in alike:
        if other != folder and folder.exists() and folder.samefile(other):
            raise SchemaDrift(
                f"{name} clashes with state {table_name(other.name)!r}: {folder.name!r} and "
                f"{other.name!r} are the same folder in {str(folder.parent)!r}; expected a folder "
                "for each; nothing was written; give the state another table",
                other=table_name(other.name),
            )


def _check_around(location: Location, name: str) -> None:
    """Refuse a path within another table, whose VACUUM would remove its files."""
    if location.local:
        root = Path(location.root)
        folders = [str(path) for path in (root, *root.parents) if any((path / LOG).glob("*.json"))]
    else:
        is_table = DeltaTable.is_deltatable(location.root, location.options or None)
        folders = [location.root] if is_table else []
    if folders:
        raise SchemaDrift(
            f"{name} would be inside the Delta table {folders[0]!r}, and a VACUUM of that table "
            "would remove its files; expected a folder outside all tables; nothing was written; "
            "give the state another folder",
            other=folders[0],
        )


def stored_states(location: Location, own: str) -> tuple[StateTable, ...] | None:
    """Return the states in a folder; in an object store, whose folders are not listed, only *own*.

    A table that cannot be read is returned by name only, unless it is *own*. The result is None if
    it is unknown whether there are states.
    """
    if not location.local:
        uri, options = location.table(own), location.options or None
        found = _described(own, uri, options) if DeltaTable.is_deltatable(uri, options) else None
        return None if found is None else (found,)
    folder = Path(location.root)
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    tables = {
        table_name(path.name): partial(_described, table_name(path.name), str(path))
        for path in paths
        if path.is_dir() and DeltaTable.is_deltatable(str(path))
    }
    return listed_states(own, tables)


def _described(name: str, uri: str, options: dict[str, str] | None = None) -> StateTable | None:
    try:
        text = DeltaTable(uri, storage_options=options).metadata().configuration.get(DECLARATION)
    except FAILURES as error:
        raise translated(error, f"state {name!r} in {uri}", uri=uri) from error
    return None if text is None else parsed_declaration(name, text)


def _check(table: DeltaTable, layout: Layout, name: str) -> None:
    properties = table.metadata().configuration
    wanted = layout.properties[DECLARATION]
    text = properties.get(DECLARATION)
    if text is None:
        raise SchemaDrift(
            f"{name} is not a table of txtopo; got {wanted}; nothing was written; give the state "
            "another table",
            stored=text,
            declared=wanted,
        )
    # The next claim may add columns, as one may have done that ended before it was done.
    change = change_of(table, layout.state, name)
    stored = layout if change is None else Layout(change.stored)
    if properties.get("delta.enableDeletionVectors", "false").lower() == "true":
        raise SchemaDrift(
            f"{name} has deletion vectors, which delta-rs cannot read; expected "
            "delta.enableDeletionVectors = false; nothing was written; turn them off and run REORG "
            "TABLE … APPLY (PURGE)",
            store=name,
            setting="delta.enableDeletionVectors",
            got="true",
            expected="false",
        )
    retention = properties.get(_RETENTION)
    if retention is not None and _days(retention) < _RETENTION_DAYS_MIN:
        raise SchemaDrift(
            f"{name} deletes its transactions, and with them its ledger, after {retention!r}; "
            f"expected {_RETENTION} of at least {_RETENTION_DAYS_MIN} days, or not set; nothing "
            "was written",
            store=name,
            setting=_RETENTION,
            got=retention,
        )
    if properties.get(STATISTICS) != stored.properties[STATISTICS]:
        raise SchemaDrift(
            f"{name} has different statistics than it was created with; got {STATISTICS} = "
            f"{properties.get(STATISTICS)!r}; expected {stored.properties[STATISTICS]!r}, because "
            "statistics of keys lose digits, so a merge would miss a key; nothing was written",
            store=name,
            setting=STATISTICS,
            got=properties.get(STATISTICS),
            expected=stored.properties[STATISTICS],
        )
    found = {f.name: f.type for f in pa.schema(table.schema().to_arrow())}
    expected = {f.name: f.type for f in stored.schema}
    most = {f.name: f.type for f in layout.schema}
    if not expected.items() <= found.items() <= most.items():
        raise SchemaDrift(
            f"{name} does not have the columns that the state declares; expected "
            f"{_shown(expected)}; the table has {_shown(found)}; nothing was written; was it "
            "changed by hand? or did a start that adds columns end early? if so, let that "
            "program finish its start first",
            store=name,
            got=_shown(found),
            expected=_shown(expected),
        )


def _days(interval: str) -> int:
    match = _DAYS.fullmatch(interval.strip())
    return int(match[1]) * _DAYS_OF[match[2].lower()] if match else 0


def _shown(columns: dict[str, pa.DataType]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


LEDGER = "txtopo.ledger"
"""In the metadata of a commit: the version of its transaction, to check that both match."""

ATTEMPT = "txtopo.attempt"

ATTEMPTS = "txtopo.attempts"

FIRST_TXID = "txtopo.first_txid"

TERM = "txtopo.term"

SCHEMA = "txtopo.ledger_schema"

# Foreign commits (OPTIMIZE, VACUUM) and folds may lie between two transactions of ours.
_LOOKED_BACK_MAX = 100


def ledger_of(table: DeltaTable, state: str) -> Ledger | None:
    """Return the ledger as of the table's snapshot; None if nobody has claimed the state.

    Raises:
        SchemaDrift: The table has rows of a topology, but the transaction is gone, or the ledger
            cannot be read.
        SchemaVersionError: A newer txtopo wrote it; upgrade this one.
    """
    properties = table.metadata().configuration
    owner = properties.get(OWNER)
    if owner is None:
        return None
    try:
        return _ledger(table, state, owner, properties)
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaDrift(
            f"state {state!r} belongs to topology {owner!r}, but the ledger in its Delta table "
            f"cannot be read; got {type(error).__name__}: {error}; expected the ledger as txtopo "
            "wrote it; was a property of the table or the metadata of a commit changed by hand?",
            state=state,
            owner=owner,
            got=f"{type(error).__name__}: {error}",
        ) from error


def _ledger(table: DeltaTable, state: str, owner: str, properties: Mapping[str, str]) -> Ledger:
    version = table.transaction_version(application(owner, state))
    if version is None:
        if table.file_uris():
            raise SchemaDrift(
                f"state {state!r} belongs to topology {owner!r}, but its Delta table has no "
                "transaction of it; nothing was written; was "
                "delta.setTransactionRetentionDuration set, or the table overwritten? restore "
                "the table, or start with a new one",
                state=state,
                owner=owner,
            )
        return Ledger(owner, 0, **_named(properties))
    epoch, txid, _ = unpacked(version)
    notes = _notes(table, version)
    if notes is None:
        return Ledger(owner, epoch, txid, **_named(properties))
    return Ledger(
        owner,
        epoch,
        txid,
        int(notes[WRITER_EPOCH]),
        int(notes[ATTEMPT]),
        first_txid=int(notes[FIRST_TXID]),
        attempts=json.loads(notes[ATTEMPTS]),
        term=str(notes[TERM]),
        writer_term=str(notes[WRITER_TERM]),
        **_named(notes),
    )


def properties_of(ledger: Ledger) -> dict[str, str]:
    """Return the ledger as properties of its table."""
    return {
        OWNER: ledger.topology,
        COMPONENT: ledger.component,
        STATE: ledger.state,
        ENSEMBLE: ledger.ensemble,
        SCHEMA: str(ledger.schema),
    }


def transaction(ledger: Ledger, state: str, before: Ledger | None = None) -> CommitProperties:
    """Return the properties of a commit that either sets the ledger or is refused.

    Args:
        ledger: The ledger.
        state: Name of the state.
        before: The ledger before a claim. The transaction of its owner is also set: if that owner
            writes in between, either its write or the claim is refused.
    """
    owners = {ledger.topology} | ({before.topology} if before is not None else set())
    return CommitProperties(
        custom_metadata=noted(ledger),
        app_transactions=[
            Transaction(application(owner, state), packed(ledger)) for owner in sorted(owners)
        ],
    )


def noted(ledger: Ledger) -> dict[str, str]:
    """Return the part of a ledger that is in the metadata of a commit."""
    return {
        LEDGER: str(packed(ledger)),
        "txtopo.epoch": str(ledger.epoch),
        "txtopo.txid": str(ledger.txid),
        ATTEMPT: str(ledger.attempt),
        FIRST_TXID: str(ledger.first_txid),
        ATTEMPTS: json.dumps(ledger.attempts),
        COMPONENT: ledger.component,
        STATE: ledger.state,
        ENSEMBLE: ledger.ensemble,
        SCHEMA: str(ledger.schema),
        WRITER_EPOCH: str(ledger.writer_epoch),
        TERM: ledger.term,
        WRITER_TERM: ledger.writer_term,
    }


def notes_of(commit: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of a commit: delta-rs keeps it among the rest, Spark as one text."""
    text = commit.get("userMetadata")
    if LEDGER in commit or not isinstance(text, str):
        return commit
    try:
        notes = json.loads(text)
    except ValueError:
        return commit  # a user's own
    return notes if isinstance(notes, dict) else commit


def _named(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the owner and the ensemble that the metadata or properties of a commit name."""
    schema = int(found[SCHEMA])
    if schema > LEDGER_SCHEMA:
        raise SchemaVersionError(
            f"a ledger in Delta has schema {schema}; expected at most {LEDGER_SCHEMA}; a newer "
            "txtopo wrote it; upgrade this installation",
            schema=schema,
        )
    fields = {"component": COMPONENT, "state": STATE, "ensemble": ENSEMBLE}
    return {"schema": schema, **{field: found[name] for field, name in fields.items()}}


def _notes(table: DeltaTable, version: int) -> Mapping[str, Any] | None:
    """Return the metadata of the commit that wrote the ledger; None if the log is gone."""
    for limit in (1, _LOOKED_BACK_MAX):
        for commit in map(notes_of, table.history(limit)):
            if commit.get(LEDGER) == str(version):
                return commit
    return None


EPOCH_BITS, TXID_BITS, NUMBER_BITS = 18, 33, 12
"""63 bits: 262,143 coordinators, 8,589,934,591 batches, 4,095 attempts at a batch in one epoch."""


def application(topology: str, state: str) -> str:
    """Return the application id of the transactions of a state."""
    return f"{topology}/{state}"


def packed(ledger: Ledger) -> int:
    """Return a ledger as one number: after a claim (epoch, txid, 0), else (epoch, txid, number).

    Raises:
        ValueRefusedError: A number does not fit; the message says which one, and what to do.
    """
    attempts_max = (1 << NUMBER_BITS) - 2
    for name, value, most, remedy in (
        ("epoch", ledger.epoch, (1 << EPOCH_BITS) - 1, "begin with a new table"),
        ("txid", ledger.txid, (1 << TXID_BITS) - 1, "begin with a new table"),
        (
            "attempt",
            ledger.attempt,
            attempts_max,
            "start the topology again, so that attempts begin at 0",
        ),
    ):
        if not 0 <= value <= most:
            raise ValueRefusedError(
                f"{name} {value} does not fit into the version of a Delta transaction; expected at "
                f"most {most}; nothing was written; {remedy}",
                ledger=ledger,
            )
    number = ledger.attempt + 1 if ledger.writer_epoch == ledger.epoch else 0
    return ((ledger.epoch << TXID_BITS) | ledger.txid) << NUMBER_BITS | number


def unpacked(version: int) -> tuple[int, int, int]:
    """Return (epoch, txid, number) of a transaction's version."""
    number = version & ((1 << NUMBER_BITS) - 1)
    txid = version >> NUMBER_BITS & ((1 << TXID_BITS) - 1)
    return version >> (NUMBER_BITS + TXID_BITS), txid, number
