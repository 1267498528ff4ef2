"""The ledger of a state in Delta: the last transaction of its application id.

The version of that transaction packs the epoch that may write and the txid. Which attempt of which
epoch wrote the txid stands in the custom metadata of the same commit. Where the log that has it is
gone, the writer is unknown and taken as epoch 0: then a restart does not adopt the txid but does it
again, which is always right.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, Transaction

from state_backends.delta.layout import OWNER, WRITER_EPOCH
from state_backends.delta.packing import application, packed, unpacked
from txtopo.errors import SchemaDrift
from txtopo.state import Ledger

if TYPE_CHECKING:
    from deltalake import DeltaTable

LEDGER = "txtopo.ledger"
"""In the metadata of a commit: the version of its transaction, so that both are known to match."""
ATTEMPT = "txtopo.attempt"
# Foreign commits (OPTIMIZE, VACUUM) and folds stand between two transactions of ours.
_LOOKED_BACK_MAX = 100


def ledger_of(table: DeltaTable, state: str) -> Ledger | None:
    """Return the ledger as of the table's snapshot; None if nobody has claimed the state.

    Raises:
        SchemaDrift: The table has rows of a topology, but the transaction is gone.
    """
    owner = table.metadata().configuration.get(OWNER)
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
        return Ledger(owner, 0)
    epoch, txid, _ = unpacked(version)
    return Ledger(owner, epoch, txid, *_writer(table, version))


def transaction(ledger: Ledger, state: str) -> CommitProperties:
    """Return what makes a commit set the ledger, or be refused."""
    return CommitProperties(
        custom_metadata=noted(ledger),
        app_transactions=[Transaction(application(ledger.topology, state), packed(ledger))],
    )


def noted(ledger: Ledger) -> dict[str, str]:
    """Return what stands of a ledger in the metadata of a commit."""
    return {
        LEDGER: str(packed(ledger)),
        "txtopo.epoch": str(ledger.epoch),
        "txtopo.txid": str(ledger.txid),
        ATTEMPT: str(ledger.attempt),
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


def _writer(table: DeltaTable, version: int) -> tuple[int, int]:
    """Return who wrote the txid: epoch and attempt."""
    for limit in (1, _LOOKED_BACK_MAX):
        for commit in map(notes_of, table.history(limit)):
            if commit.get(LEDGER) == str(version):
                return int(commit.get(WRITER_EPOCH, 0)), int(commit.get(ATTEMPT, 0))
    return 0, 0
