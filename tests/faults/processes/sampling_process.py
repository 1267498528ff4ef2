"""Read the states of the flights again and again, until the standard input is closed.

Says ``sample`` for each table that it has read, and ``pass`` after all of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import sys
from collections.abc import Mapping
from typing import Any

from tests.harness.processes import say
from txtopo.errors import StateUsageError, StoreUnavailable
from txtopo.state import open_state

# With a shorter pause it would use much of the core that the watched process needs.
PAUSE_S = 0.2


def digest(items: Mapping[Any, Any]) -> str:
    """Return a digest of the contents of a state."""
    text = json.dumps(sorted([list(key), value] for key, value in items.items()), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def main(url: str, *tables: str) -> None:
    say("ready")
    while not select.select([sys.stdin], [], [], PAUSE_S)[0] or os.read(0, 1):
        for table in tables:
            try:
                with open_state(url, table=table).reader() as reader:
                    txid = reader.ledger.txid if reader.ledger else 0
                    items = dict(reader.items())
            except (StateUsageError, StoreUnavailable):
                continue  # its table is not there yet
            rows = sum(row["departures"] + row["cancellations"] for row in items.values())
            say("sample", table=table, txid=txid, rows=rows, digest=digest(items))
        say("pass")


if __name__ == "__main__":
    main(*sys.argv[1:])
