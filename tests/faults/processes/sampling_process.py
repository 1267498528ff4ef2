"""Reads the states of the flights again and again, until its standard input is closed.

Prints one JSON line per sample: the table, the txid in its ledger, how many flights it has counted,
and a digest of its contents; and a word when it has looked at all tables once.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import sys
from collections.abc import Mapping
from typing import Any

from txtopo.errors import StateUsageError, StoreUnavailable
from txtopo.state import open_state

# Without a pause it would take a core from what it watches.
PAUSE_S = 0.05


def digest(items: Mapping[Any, Any]) -> str:
    """Return what stands for the contents of a state."""
    text = json.dumps(sorted([list(key), value] for key, value in items.items()), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def main(url: str, *tables: str) -> None:
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], PAUSE_S)[0] or os.read(0, 1):
        for table in tables:
            try:
                with open_state(url, table=table).reader() as reader:
                    txid = reader.ledger.txid if reader.ledger else 0
                    items = dict(reader.items())
            except (StateUsageError, StoreUnavailable):
                continue  # its table is not there yet
            rows = sum(row["departures"] + row["cancellations"] for row in items.values())
            print(json.dumps([table, txid, rows, digest(items)]), flush=True)
        print("pass", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
