"""The ledger of a state in Delta: the last transaction of its application id.

The version of that transaction packs the epoch that may write and the txid. Which attempt of which
epoch wrote the txid stands in the custom metadata of the same commit. Where the log that has it is
gone, the writer is unknown and taken as epoch 0: then a restart does not adopt the txid but does it
again, which is always right. Owner and ensemble stand there too, and in properties of the table for
the time when that log is gone. While it is there it decides: a write that was prepared under an
earlier claim, and that Delta let through, is known by the ensemble that it names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, Transaction

from state_backends.delta.layout import COMPONENT, ENSEMBLE, OWNER, STATE, WRITER_EPOCH
from state_backends.delta.packing import application, packed, unpacked
from txtopo.errors import SchemaDrift, SchemaVersionError
from txtopo.state import LEDGER_SCHEMA, Ledger

if TYPE_CHECKING:
    from deltalake import DeltaTable

LEDGER = "txtopo.ledger"
"""In the metadata of a commit: the version of its transaction, so that both are known to match."""
ATTEMPT = "txtopo.attempt"
ATTEMPTS = "txtopo.attempts"
FIRST_TXID = "txtopo.first_txid"
SCHEMA = "txtopo.ledger_schema"
# Foreign commits (OPTIMIZE, VACUUM) and folds stand between two transactions of ours.
_LOOKED_BACK_MAX = 100


def ledger_of(table: DeltaTable, state: str) -> Ledger | None:
    """Return the ledger as of the table's snapshot; None if nobody has claimed the state.

    Raises:
        SchemaDrift: The table has rows of a topology, but the transaction is gone.
    """
    properties = table.metadata().configuration
    owner = properties.get(OWNER)
    if owner is None:
        return None
    version = table.transaction_version(application(owner, state))
    if version is None:
        if table.file_uris():
            raise SchemaDrift(
                f"state {state!r} belongs to topology {owner!r}, but its Delta table has no "
                "transaction of it; nothing was written; was delta.setTransactionRetentionDuration "
                "set, or the table overwritten? restore the table, or begin with a new one"
            )
        return Ledger(owner, 0, **_named(properties))
    epoch, txid, _ = unpacked(version)
    notes = _notes(table, version)
    writer = () if notes is None else (int(notes.get(WRITER_EPOCH, 0)), int(notes.get(ATTEMPT, 0)))
    ledger = Ledger(owner, epoch, txid, *writer, **_named(properties if notes is None else notes))
    if notes is None or SCHEMA not in notes:
        return ledger
    attempts = tuple(json.loads(notes[ATTEMPTS]))
    return replace(ledger, first_txid=int(notes[FIRST_TXID]), attempts=attempts)


def properties_of(ledger: Ledger) -> dict[str, str]:
    """Return what a table's properties say of its ledger."""
    return {
        OWNER: ledger.topology,
        COMPONENT: ledger.component,
        STATE: ledger.state,
        ENSEMBLE: ledger.ensemble,
        SCHEMA: str(ledger.schema),
    }


def transaction(ledger: Ledger, state: str, before: Ledger | None = None) -> CommitProperties:
    """Return what makes a commit set the ledger, or be refused.

    Args:
        ledger: The ledger.
        state: Name of the state.
        before: The ledger that a claim was made on. Its owner's transaction is set too: a write of
            that one which comes in between is refused, as is the claim where it came first.
    """
    owners = {ledger.topology} | ({before.topology} if before is not None else set())
    return CommitProperties(
        custom_metadata=noted(ledger),
        app_transactions=[
            Transaction(application(owner, state), packed(ledger)) for owner in sorted(owners)
        ],
    )


def noted(ledger: Ledger) -> dict[str, str]:
    """Return what stands of a ledger in the metadata of a commit."""
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
    }


def notes_of(commit: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of a commit: of delta-rs' beside the rest, of Spark's as a text."""
    text = commit.get("userMetadata")
    if LEDGER in commit or not isinstance(text, str):
        return commit
    try:
        notes = json.loads(text)
    except ValueError:
        return commit  # a user's own
    return notes if isinstance(notes, dict) else commit


def _named(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return owner and ensemble, as properties or the notes of a commit have them."""
    schema = int(found.get(SCHEMA, 1))
    if schema > LEDGER_SCHEMA:
        raise SchemaVersionError(
            f"a ledger in Delta has schema {schema}; expected at most {LEDGER_SCHEMA}; a newer "
            "txtopo wrote it; upgrade this one",
            schema=schema,
        )
    fields = {"component": COMPONENT, "state": STATE, "ensemble": ENSEMBLE}
    return {"schema": schema, **{field: found.get(name, "") for field, name in fields.items()}}


def _notes(table: DeltaTable, version: int) -> Mapping[str, Any] | None:
    """Return what the commit that wrote the ledger says of it; None if the log is gone."""
    for limit in (1, _LOOKED_BACK_MAX):
        for commit in map(notes_of, table.history(limit)):
            if commit.get(LEDGER) == str(version):
                return commit
    return None
