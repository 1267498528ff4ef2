"""Making the Delta table of a state, checking one that is there, and listing those of a folder."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from state_backends.delta.durability import sync_made
from state_backends.delta.failures import FAILURES, translated
from state_backends.delta.layout import DECLARATION, STATISTICS, Layout
from state_backends.delta.location import Location
from state_backends.delta.names import LOG, table_name
from txtopo.errors import SchemaDrift
from txtopo.state import StateTable, declared, listed

_RETENTION = "delta.setTransactionRetentionDuration"
_RETENTION_DAYS_MIN = 30
"""A topology that was stopped for so long may still be started again and find its ledger."""
_DAYS = re.compile(r"interval (\d+) (day|week|month|year)s?", re.I)
_DAYS_OF = {"day": 1, "week": 7, "month": 30, "year": 365}


def create_table(place: Location, layout: Layout, name: str) -> None:
    """Make the table if it is missing.

    Args:
        place: The folder of all states.
        layout: The columns.
        name: Which state where, for messages.

    Raises:
        SchemaDrift: What is there does not fit the state.
    """
    uri, options = place.table(layout.state.name), place.options or None
    if place.local:
        _check_folder(uri, name)
    if not DeltaTable.is_deltatable(uri, options):
        _check_around(place, name)
        if place.local:
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
            # Another process may have made it meanwhile.
            if not DeltaTable.is_deltatable(uri, options):
                raise
    _check(DeltaTable(uri, storage_options=options), layout, name)


def _check_folder(uri: str, name: str) -> None:
    """Refuse a place where something else is, which a table would be mixed with."""
    folder = Path(uri)
    _check_folded(folder, name)
    strangers = [folder.name] if folder.exists() and not folder.is_dir() else []
    if folder.is_dir():
        # The log may be there without a version: somebody died, or is at it now.
        strangers = sorted(path.name for path in folder.iterdir() if path.name != LOG)
    if strangers and not (folder.is_dir() and DeltaTable.is_deltatable(uri)):
        raise SchemaDrift(
            f"{name} cannot be made: its place is taken and is no Delta table; got "
            f"{', '.join(strangers[:5])}; expected nothing there; nothing was written; move it "
            "away, or give the state another table or folder"
        )


def _check_folded(folder: Path, name: str) -> None:
    """Refuse a folder that is another state's, by a link or since upper and lower case are one."""
    alike = [path for path in folder.parent.glob("*") if path.name.lower() == folder.name.lower()]
    if folder in alike and not folder.is_symlink():
        return
    for other in alike:
        if other != folder and folder.exists() and folder.samefile(other):
            raise SchemaDrift(
                f"{name} clashes with state {table_name(other.name)!r}: {folder.name!r} and "
                f"{other.name!r} are one folder in {str(folder.parent)!r}; expected a folder for "
                "each; nothing was written; give the state another table",
                other=table_name(other.name),
            )


def _check_around(place: Location, name: str) -> None:
    """Refuse a place within another table, whose VACUUM would remove what is in it."""
    if place.local:
        root = Path(place.root)
        folders = [str(path) for path in (root, *root.parents) if any((path / LOG).glob("*.json"))]
    else:
        is_table = DeltaTable.is_deltatable(place.root, place.options or None)
        folders = [place.root] if is_table else []
    if folders:
        raise SchemaDrift(
            f"{name} would lie within the Delta table {folders[0]!r}, and a VACUUM of that one "
            "would remove its files; expected a folder that is in no table; nothing was written; "
            "give the state another one",
            other=folders[0],
        )


def stored_states(place: Location, own: str) -> tuple[StateTable, ...] | None:
    """Return the states in a folder; None where folders cannot be listed.

    A table that cannot be read is a name alone, unless it is *own*.
    """
    if not place.local:
        return None
    folder = Path(place.root)
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    tables = {
        table_name(path.name): partial(_described, path)
        for path in paths
        if path.is_dir() and DeltaTable.is_deltatable(str(path))
    }
    return listed(own, tables)


def _described(path: Path) -> StateTable | None:
    name = table_name(path.name)
    try:
        text = DeltaTable(str(path)).metadata().configuration.get(DECLARATION)
    except FAILURES as error:
        raise translated(error, f"state {name!r} in {path}", uri=str(path)) from error
    return None if text is None else declared(name, text)


def _check(table: DeltaTable, layout: Layout, name: str) -> None:
    properties = table.metadata().configuration
    wanted = layout.properties[DECLARATION]
    text = properties.get(DECLARATION)
    if text != wanted:
        made = "is no table of txtopo" if text is None else f"was made with {text}"
        raise SchemaDrift(
            f"{name} {made}; got {wanted}; nothing was written; declare it as before, or give the "
            "state another table",
            stored=text,
            declared=wanted,
        )
    if properties.get("delta.enableDeletionVectors", "false").lower() == "true":
        raise SchemaDrift(
            f"{name} has deletion vectors, which delta-rs cannot read; expected "
            "delta.enableDeletionVectors = false; nothing was written; turn them off and run REORG "
            "TABLE … APPLY (PURGE)"
        )
    retention = properties.get(_RETENTION)
    if retention is not None and _days(retention) < _RETENTION_DAYS_MIN:
        raise SchemaDrift(
            f"{name} forgets its transactions, and with them its ledger, after {retention!r}; "
            f"expected {_RETENTION} of at least {_RETENTION_DAYS_MIN} days, or not set; nothing "
            "was written"
        )
    if properties.get(STATISTICS) != layout.properties[STATISTICS]:
        raise SchemaDrift(
            f"{name} has other statistics than it was made with; got {STATISTICS} = "
            f"{properties.get(STATISTICS)!r}; expected {layout.properties[STATISTICS]!r}, since "
            "those of keys lose digits and a merge would miss a key; nothing was written"
        )
    found = {f.name: f.type for f in pa.schema(table.schema().to_arrow())}
    expected = {f.name: f.type for f in layout.schema}
    if found != expected:
        raise SchemaDrift(
            f"{name} has other columns than the state declares; expected {_shown(expected)}; the "
            f"table has {_shown(found)}; nothing was written; was it changed by hand?"
        )


def _days(interval: str) -> int:
    match = _DAYS.fullmatch(interval.strip())
    return int(match[1]) * _DAYS_OF[match[2].lower()] if match else 0


def _shown(columns: dict[str, pa.DataType]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
