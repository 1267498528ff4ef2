"""A state in a JSON file, replaced as a whole: ``json:folder``.

``RowBackend`` knows the protocol; a plug-in reads everything, and replaces it if nobody else did.
``RowText`` turns keys and rows of every type into JSON and back.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote, unquote

from json_store import whole_file
from txtopo.plugins.stores import (
    Contents,
    Key,
    Ledger,
    Row,
    RowBackend,
    RowText,
    StateTable,
    declaration,
    parsed_declaration,
)


class StateFile(RowBackend):
    """A state in a file of its own; exactly once, for up to some thousand rows."""

    def __init__(self, url: str, table: StateTable) -> None:
        super().__init__(table)
        self.folder = Path(url.partition(":")[2])
        self.name = f"{quote(table.name, safe='', errors='surrogatepass')}.json"
        self.text = RowText(table)

    def load(self) -> Contents:
        stored = whole_file.read(self.folder / self.name)
        if stored is None:
            return Contents()
        found = json.loads(stored)
        rows = {self.text.key_of(k): self.text.row_from(row) for k, row in found["rows"].items()}
        return Contents(Ledger.of(found["ledger"]), rows)

    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> bool:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = self.load()
            if held.ledger != expected:
                return False
            rows = {
                self.text.key(key): self.text.plain(row)
                for key, row in {**held.rows, **changes}.items()
                if row is not None
            }
            stored = {"ledger": asdict(ledger), "columns": declaration(self.table), "rows": rows}
            whole_file.write(self.folder, {self.name: json.dumps(stored, indent=1)})
        return True

    def stored(self) -> tuple[StateTable, ...]:
        files = sorted(self.folder.glob("*.json"))
        names = [unquote(file.stem, errors="surrogatepass") for file in files]
        columns = [json.loads(file.read_text())["columns"] for file in files]
        return tuple(map(parsed_declaration, names, columns))
