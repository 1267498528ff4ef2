"""What a state is in Redis: three keys of one slot, and the name of the state in a set.

* ``txtopo:{counts}:rows``: the hash, texts of rows by texts of keys.
* ``txtopo:{counts}:head``: a string, the ledger and the columns; what a writer watches.
* ``txtopo:{counts}:touched``: a list, the keys that the last txid wrote; what undoes it.
* ``txtopo:{counts}:deleted``: a set, the keys of the tombstones that the last txid left.
* ``txtopo:states``: a set, the names of all states.

These names are reserved. What is of another type, or is there before the head, is of somebody else
and refused when the state is created: a commit would take it for its own.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from urllib.parse import quote

from txtopo.errors import SchemaDrift, SchemaVersionError
from txtopo.state import Ledger

VERSION = 2
"""2: the ledger has the fields of schema 2; one of version 1 is read as it is."""
STATES = "txtopo:states"


@dataclass(frozen=True, slots=True)
class Names:
    """The keys of one state."""

    rows: str
    head: str
    touched: str
    deleted: str

    def types(self) -> dict[str, str]:
        """Return what type each key has, those of all states included."""
        types = {self.rows: "hash", self.head: "string", self.touched: "list", self.deleted: "set"}
        return {**types, STATES: "set"}


def names_of(state: str) -> Names:
    """Return the keys of a state."""
    tag = quote(state.encode("utf-8", "surrogatepass"), safe="")
    return Names(*(f"txtopo:{{{tag}}}:{part}" for part in ("rows", "head", "touched", "deleted")))


@dataclass(frozen=True, slots=True)
class Head:
    """What is written with every change of a state.

    Attributes:
        columns: The declaration of its columns.
        ledger: Its ledger.
        filled: Whether it had rows then: Redis has no empty hashes, so one that was removed looks
            like one without rows. None where an older txtopo did not write it.
    """

    columns: str
    ledger: Ledger
    filled: bool | None = None

    def text(self) -> str:
        """Return the head as JSON."""
        parts = {"version": VERSION, "columns": self.columns, "ledger": asdict(self.ledger)}
        return json.dumps(parts if self.filled is None else parts | {"filled": self.filled})

    def check_rows(self, count: int, place: str) -> None:
        """Check that the hash is there, if it was.

        Raises:
            SchemaDrift: It is gone.
        """
        if self.filled and not count:
            raise SchemaDrift(
                f"{place}: its rows are gone, but its ledger holds txid {self.ledger.txid}; "
                "expected both or none; nothing was written; was the key removed by hand? restore "
                "it, or remove the keys of the state and begin anew"
            )


def head_of(text: str | None, place: str) -> Head | None:
    """Return the head that has this text; None for a state that nobody has claimed."""
    if text is None:
        return None
    try:
        found = json.loads(text)
        version = found["version"]
        head = None
        if version <= VERSION:
            head = Head(found["columns"], Ledger.of(found["ledger"]), found.get("filled"))
    except (ValueError, TypeError, KeyError) as error:
        raise SchemaDrift(
            f"{place} has a ledger that cannot be read; got {text!r:.200}; was it changed by hand?"
        ) from error
    if head is None:
        raise SchemaVersionError(
            f"{place} was written by a newer txtopo; got version {version}; expected at most "
            f"{VERSION}; upgrade txtopo"
        )
    return head
