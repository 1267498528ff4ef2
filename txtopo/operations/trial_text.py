"""A trial as text and as JSON, as the command line shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING

from txtopo.attempt import txids_text
from txtopo.errors import count_text
from txtopo.metadata import Json
from txtopo.operations.shown_rows import CHARACTERS_MAX, raised_lines, row_json
from txtopo.state.plain_values import json_of

if TYPE_CHECKING:
    from txtopo.operations.table_comparison import RowDifference, TableComparison
    from txtopo.operations.trial import Trial, TrialFailure, TriedState
    from txtopo.state.backend import Values
    from txtopo.tuples import Fields

ROWS_SHOWN = 20
"""How many rows of each kind of difference are shown."""


def trial_text(found: Trial) -> str:
    """Return a trial as text."""
    return "\n".join(_lines(found))


def trial_json(found: Trial) -> dict[str, Json]:
    """Return a trial as JSON."""
    return {
        "topology": found.topology_id,
        "from": found.first_txid,
        "to": found.last_txid,
        "begun": found.begun_txid,
        "differences": [*found.differences],
        "start": [*found.start],
        "spouts": {**found.spouts},
        "states": {name: _state_json(each) for name, each in found.states.items()},
        "gone": [*found.gone],
        "times_s": [*found.times_s],
        "running_times_s": [*found.running_times_s],
        "failure": None if found.failure is None else _failure_json(found.failure),
        "tables": [*found.tables],
        "equal": found.equal,
    }


def _lines(found: Trial) -> Iterator[str]:
    txids = txids_text(found.first_txid, found.last_txid)
    yield f"topology {found.topology_id!r}, {txids}"
    if found.begun_txid < found.first_txid:
        before = txids_text(found.begun_txid, found.first_txid - 1)
        yield f"  {before} before them, with which the states begin, computed first"
    yield from (f"  {each}" for each in found.differences)
    yield from (f"  {each}" for each in found.start)
    yield from (f"spout {id!r}: {text}" for id, text in found.spouts.items())
    for name, each in found.states.items():
        yield from _state_lines(name, each)
    yield from (f"state {name!r}: only in the running program" for name in found.gone)
    if found.failure is not None:
        yield from _failure_lines(found.failure)
    yield from _times(found)
    if found.tables:
        yield f"written to the scratch store: {', '.join(found.tables)}"
    yield _verdict(found)


def _verdict(found: Trial) -> str:
    if found.failure is not None:
        return "failed"
    if differing := found.differing:
        return f"different: {', '.join(differing)}"
    return "equal" if found.equal else "no difference found, but not every table was compared"


def _state_lines(name: str, state: TriedState) -> Iterator[str]:
    yield f"state {name!r} begins {state.begins}"
    yield f"  {count_text(state.written, 'key')} written"
    if state.statements:
        yield f"  {count_text(state.statements, 'statement')} of user code, not executed"
    compared = state.comparison
    if compared is None:
        yield f"  {state.compared_with}"
        return
    what = f"{count_text(compared.keys, 'key')} compared with {state.compared_with}"
    yield f"  {what}: {count_text(len(compared.differences), 'difference')}"
    if compared.left_out:
        yield f"  not compared: {', '.join(compared.left_out)}, which only one program has"
    for title, rows in _kinds(compared):
        if rows:
            yield f"  {title}: {count_text(len(rows), 'row')}"
            yield from (f"    {_row_text(compared, each)}" for each in rows[:ROWS_SHOWN])
        if (more := len(rows) - ROWS_SHOWN) > 0:
            yield f"    … {more} more"
    if state.statements_differ:
        yield "  the running program made other statements"


def _kinds(compared: TableComparison) -> Iterator[tuple[str, Sequence[RowDifference]]]:
    yield "only in the changed program", compared.only_here
    yield "only in the running program", compared.only_there
    yield "other values", compared.changed


def _row_text(compared: TableComparison, each: RowDifference) -> str:
    key = row_json(compared.here.key, each.key)
    if each.here is None or each.there is None:
        values = _values(compared, each, one=each.here is not None)
        return f"{key}: {json_of(values, CHARACTERS_MAX)}"
    here, there = _values(compared, each, one=True), _values(compared, each, one=False)
    assert here is not None
    assert there is not None
    changed = [
        f"{name} {_one(there[name])} → {_one(value)}"
        for name, value in here.items()
        if name in there and there[name] != value
    ]
    return f"{key}: {', '.join(changed)}"


def _one(value: object) -> Json:
    return json_of(value, CHARACTERS_MAX)


def _values(compared: TableComparison, each: RowDifference, *, one: bool) -> dict[str, object]:
    fields, values = (compared.here.value, each.here) if one else (compared.there.value, each.there)
    return {} if values is None else _named(fields, values)


def _named(fields: Fields, values: Values) -> dict[str, object]:
    return dict(zip(fields.names, values, strict=True))


def _failure_lines(failure: TrialFailure) -> Iterator[str]:
    who = "the running program" if failure.running else "the changed program"
    yield f"{who} failed in txid {failure.txid}, in {failure.component!r}: {failure.error}"
    if failure.raised is not None:
        yield from raised_lines(failure.raised)


def _failure_json(failure: TrialFailure) -> Json:
    raised = failure.raised
    return {
        "txid": failure.txid,
        "component": failure.component,
        "error": failure.error,
        "program": "running" if failure.running else "changed",
        "row": None if raised is None or raised.row is None else _one(raised.row),
        "stream": None if raised is None else raised.source,
        "traceback": None if raised is None else raised.text,
    }


def _state_json(state: TriedState) -> Json:
    value: dict[str, Json] = {
        "begins": state.begins,
        "written": state.written,
        "statements": state.statements,
        "compared_with": state.compared_with,
        "differs": state.differs,
        "keys": None,
        "only_changed": None,
        "only_running": None,
        "other_values": None,
        "first": [],
    }
    if (compared := state.comparison) is not None:
        value |= {
            "keys": compared.keys,
            "only_changed": len(compared.only_here),
            "only_running": len(compared.only_there),
            "other_values": len(compared.changed),
            "first": [
                {
                    "key": row_json(compared.here.key, each.key),
                    "changed": _side(compared, each, one=True),
                    "running": _side(compared, each, one=False),
                }
                for _, rows in _kinds(compared)
                for each in rows[:ROWS_SHOWN]
            ],
        }
    return value


def _side(compared: TableComparison, each: RowDifference, *, one: bool) -> Json:
    if (each.here if one else each.there) is None:
        return None
    return _one(_values(compared, each, one=one))


def _times(found: Trial) -> Iterator[str]:
    """Yield how long txids took, without the first one, in which code is loaded."""
    if not found.times_s[1:]:
        return
    text = f"time of a txid: {_half_and_most(found.times_s[1:])}"
    if found.running_times_s[1:]:
        text += f"; with the running program {_half_and_most(found.running_times_s[1:])}"
    yield text


def _half_and_most(times_s: Sequence[float]) -> str:
    return f"{_ms(median(times_s))} for half of them, {_ms(max(times_s))} at most"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
