"""A replay as text and as JSON, as the command line shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from txtopo.attempt import txids_text
from txtopo.errors import count_text
from txtopo.log_records import printable
from txtopo.metadata import Json
from txtopo.operations.replay import ROWS_SHOWN, Replay, StateChanges
from txtopo.operations.shown_rows import CHARACTERS_MAX, raised_lines, row_json
from txtopo.state.plain_values import json_of
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.operations.recording import ComponentTuples
    from txtopo.state.backend import Key, Values


def replay_text(found: Replay, component: str | None = None) -> str:
    """Return a replay as text.

    Args:
        found: The replay.
        component: Show only the tuples and states of this component; None for all.
    """
    return "\n".join(_lines(found, component))


def replay_json(found: Replay, component: str | None = None) -> dict[str, Json]:
    """Return a replay as JSON; the rest as :func:`replay_text`."""
    attempt = found.attempt
    value: dict[str, Json] = {
        "topology": found.topology_id,
        "asked_txid": found.txid,
        "txid": attempt.txid,
        "attempt": attempt.attempt,
        "epoch": attempt.epoch,
        "committed": found.committed,
        "first_txid": found.first_txid,
        "components": {
            id: {
                "received": {name: _rows_json(each) for name, each in tuples.received.items()},
                "emitted": {name: _rows_json(each) for name, each in tuples.emitted.items()},
            }
            for id, tuples in _components(found, component)
        },
        "states": {name: _state_json(each) for name, each in _states(found, component)},
        "content": {**found.content},
        "differences": [*found.differences],
        "failure": found.failure,
    }
    if (raised := found.raised) is not None:
        row = None if raised.row is None else json_of(raised.row, CHARACTERS_MAX)
        value["raised"] = {
            "component": raised.component,
            "row": row,
            "stream": raised.source,
            "traceback": raised.text,
        }
    return value


def _components(found: Replay, only: str | None) -> Iterator[tuple[str, ComponentTuples]]:
    return ((id, each) for id, each in found.components.items() if only in (None, id))


def _states(found: Replay, only: str | None) -> Iterator[tuple[str, StateChanges]]:
    return ((name, each) for name, each in found.states.items() if only in (None, each.component))


def _lines(found: Replay, component: str | None) -> Iterator[str]:
    attempt = found.attempt
    status = "committed" if found.committed else "not committed"
    yield f"txid {attempt.txid} of topology {found.topology_id!r}, attempt {attempt}, {status}"
    if attempt.txid != found.txid:
        yield f"  txid {found.txid} was not reached, because this one has to be computed first"
    if found.first_txid < attempt.txid:
        earlier = txids_text(found.first_txid, attempt.txid - 1)
        yield f"  computed after {earlier}, because the states are read as they were before"
    for id, tuples in _components(found, component):
        yield f"component {id!r}"
        for kind, streams in (("received", tuples.received), ("emitted", tuples.emitted)):
            for name, batches in streams.items():
                rows = sum(each.num_rows for each in batches)
                yield f"  {kind} {name}: {count_text(rows, 'row')}"
                yield from (f"    {line}" for line in _row_lines(batches))
    if not found.components:
        for id, counted in found.tuples.items():
            counts = ", ".join(
                f"{name} {count_text(rows, 'row')}" for name, rows in counted.items()
            )
            yield f"component {id!r} emitted {counts or 'nothing'}"
    for name, state in _states(found, component):
        yield f"state {name!r}, read {state.how}: {count_text(len(state.changes), 'key')} written"
        yield from (f"    {line}" for line in _change_lines(state))
    yield from _verdict(found)


def _verdict(found: Replay) -> Iterator[str]:
    if found.raised is not None and found.failure is not None:
        yield f"component {found.raised.component!r} failed"
        yield from raised_lines(found.raised)
    elif found.failure is not None:
        yield f"the batch failed: {found.failure}"
    told = [*found.compared_content]
    told += [(f"state {name!r}", each.compared) for name, each in found.states.items()]
    yield from (f"{what}: {text}" for what, text in told)


def _row_lines(batches: Sequence[pa.RecordBatch]) -> Iterator[str]:
    rows = [row for each in batches for row in each.slice(0, ROWS_SHOWN).to_pylist()]
    total = sum(each.num_rows for each in batches)
    for row in rows[:ROWS_SHOWN]:
        yield str(json_of(row, CHARACTERS_MAX))
    if total > ROWS_SHOWN:
        yield f"… {total - ROWS_SHOWN} more; --out writes all of them"


def _rows_json(batches: Sequence[pa.RecordBatch]) -> Json:
    rows = [row for each in batches for row in each.slice(0, ROWS_SHOWN).to_pylist()]
    total = sum(each.num_rows for each in batches)
    return {"rows": total, "first": [json_of(row, CHARACTERS_MAX) for row in rows[:ROWS_SHOWN]]}


def _change_lines(state: StateChanges) -> Iterator[str]:
    for key, change in list(state.changes.items())[:ROWS_SHOWN]:
        yield (
            f"{_named(state.columns.key, key)}: {_named(state.columns.value, change.before)} → "
            f"{_named(state.columns.value, change.after)}"
        )
    if (more := len(state.changes) - ROWS_SHOWN) > 0:
        yield f"… {more} more"
    for each in state.statements:
        yield f"would execute: {printable(str(each.statement)):.200}"


def _named(fields: Fields, values: Key | Values | None) -> str:
    return "no row" if values is None else str(row_json(fields, values))


def _state_json(state: StateChanges) -> Json:
    key, value = state.columns.key, state.columns.value
    return {
        "read": state.how,
        "keys": len(state.changes),
        "changes": [
            {
                "key": row_json(key, each),
                "before": row_json(value, change.before),
                "after": row_json(value, change.after),
            }
            for each, change in list(state.changes.items())[:ROWS_SHOWN]
        ],
        "statements": [str(each.statement) for each in state.statements],
        "compared": state.compared,
    }
