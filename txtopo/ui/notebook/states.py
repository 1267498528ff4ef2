"""States: what a notebook shows of a state: its ledger and its first rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from txtopo import markup
from txtopo.clock import now
from txtopo.log_records import one_line
from txtopo.state.reader import ReaderView, StateReader

if TYPE_CHECKING:
    from txtopo.state.registry import State

ROWS_MAX = 10
Row = tuple[Any, Any]
LIMIT_S = 3.0


def state_html(state: State) -> str:
    """Return a state as HTML. If its store cannot be read, or is slow, the HTML says so."""
    found: list[str] = []

    def read() -> None:
        try:
            with state.reader() as reader:
                found.append(reader_html(reader, state.shown_url))
        except Exception as error:  # noqa: BLE001 - the error is shown
            found.append(markup.titled(repr(state), markup.note(one_line(error))))

    # Notebooks are never simulated. Nothing can interrupt a hanging client: its thread is left
    # behind.
    thread = threading.Thread(target=read, name="txtopo-notebook", daemon=True)  # noqa: TID251
    thread.start()
    thread.join(LIMIT_S)
    late = f"its store did not answer within {LIMIT_S:g} s"
    return found[0] if found else markup.titled(repr(state), markup.note(late))


def reader_html(reader: StateReader, url: str | None = None) -> str:
    """Return the contents of an open reader as HTML: the ledger, and the first rows."""
    ledger, table = reader.ledger, reader.table
    log = ", mode log" if table.mode == "log" else ""
    told = [
        ("store", url),
        ("kind", f"{table.kind}{log}"),
        ("txid", "no topology has claimed it" if ledger is None else ledger.txid),
        ("epoch", None if ledger is None else ledger.epoch),
        ("topology", None if ledger is None else ledger.topology),
        ("reader", None if reader.is_snapshot else "no snapshots: rows may be of different txids"),
    ]
    deadline = now() + LIMIT_S
    rows = list(islice(_until(deadline, reader.items()), ROWS_MAX + 1))
    keys = [each.name for each in table.key]
    values = ReaderView(table).fields.names
    cells = (
        [
            *(key if len(keys) > 1 else [key]),
            *([value[name] for name in values] if len(values) > 1 else [value] * len(values)),
        ]
        for key, value in rows[:ROWS_MAX]
    )
    more = f"the first {ROWS_MAX} rows; there are more" if len(rows) > ROWS_MAX else ""
    if not rows:
        more = "no rows"
    elif now() > deadline:
        more = f"the rows that arrived within {LIMIT_S:g} s"
    return markup.titled(
        f"state {table.name}",
        markup.pairs(told),
        markup.table([*keys, *values], cells) if rows else "",
        markup.note(more) if more else "",
    )


def _until(deadline: float, rows: Iterator[Row]) -> Iterator[Row]:
    for row in rows:
        yield row
        if now() > deadline:
            return
