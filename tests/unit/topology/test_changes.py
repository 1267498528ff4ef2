"""What differs between two topologies, with any names that components and states may have."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.loop_world import Total
from txtopo import Fields, PersistentAggregate, Sum, TransactionalTopologyBuilder, open_state
from txtopo.config import ChangeKind
from txtopo.errors import TopologyError
from txtopo.fingerprint import (
    ComponentForm,
    Fingerprint,
    StateForm,
    StateName,
    differences,
    in_words,
    setting_for,
)
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from txtopo.topology.changes import added_states, other_spouts, refused_change
from txtopo.topology.component import check_id
from txtopo.topology.graph import Graph, fingerprint
from txtopo.traits import Meaning, Traits

FORM = StateForm("t", "opaque", "table", (("k", "string"),), (("a", "long"),), ("Sum",))


BAD_INPUTS: list[Any] = [[["a"]], "", {}, [["a", "b", "c", "de"]], ["abcd"]]

STORED: dict[str, Any] = FORM.to_json()  # type: ignore[assignment]


def graph(
    spout: str = "spout", bolt: str = "bolt", state: str = "state", *, opaque: bool = False
) -> Graph:
    """Return a spout and a bolt with a state in table ``t``."""
    kind = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
    source = kind({0: []}, Fields("amount long"), 1)
    builder = TransactionalTopologyBuilder("t", spout, source)
    kept = open_state("memory:", value=Fields("total long"), table="t")
    builder.set_bolt(bolt, Total()).global_grouping(spout).with_state(state, kept)
    return builder.build_topology().graph


def is_id(text: str) -> bool:
    try:
        check_id("component", text)
    except TopologyError:
        return False
    return True


PARTS = [" of ", "'", '"', " spout", "component ", "state ", "\\", " is gone", "(", "opaque table"]
IDS = st.lists(st.sampled_from(PARTS) | st.text(max_size=3), max_size=5).map("".join).filter(is_id)


@given(names=st.lists(IDS, min_size=5, max_size=5, unique=True))
def test_any_names_can_be_stored_compared_and_renamed(names: list[str]) -> None:
    spout, bolt, state, other_bolt, other_state = names
    known = fingerprint(graph(spout, bolt, state))
    renamed = graph(spout, other_bolt, other_state)
    now = fingerprint(renamed)

    assert Fingerprint.from_json(json.loads(json.dumps(known.to_json()))) == known
    assert differences(known, known) == []
    assert {each.text for each in differences(known, now)} == {
        f"component {bolt!r} is gone",
        f"{in_words((bolt, state))} is gone",
        f"component {other_bolt!r} is new",
        f"{in_words((other_bolt, other_state))} is new",
    }
    assert added_states(now, known) == ()
    assert refused_change(renamed, known, ()) is None
    assert other_spouts(known, fingerprint(graph(other_bolt, bolt, state))) is not None


@pytest.mark.parametrize(
    ("known", "added"),
    [
        ({}, [("kept", "kept")]),
        ({("kept", "kept"): FORM}, []),
        (
            {("kept", "kept"): StateForm("t", "transactional", "log", (("x", "long"),), ())},
            [],
        ),
        ({("y", "x"): FORM}, []),
        (
            {("kept", "kept"): StateForm("u", "opaque", "table", FORM.key, FORM.value)},
            [("kept", "kept")],
        ),
    ],
)
def test_a_state_is_known_by_its_table(
    known: dict[StateName, StateForm], added: list[StateName]
) -> None:
    spout = MemoryTransactionalSpout({0: []}, Fields("k string, n long"), 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout)
    kept = PersistentAggregate(open_state("memory:", table="t"), "k", {"a": Sum("n")})
    builder.set_bolt("kept", kept).fields_grouping("spout", "k")
    now = fingerprint(builder.build_topology().graph)
    before = Fingerprint(
        {id: ComponentForm("bolt", states={name: form}) for (id, name), form in known.items()}
    )

    assert list(added_states(now, before)) == added
    assert list(added_states(now, now)) == []


def form(**changes: Any) -> Fingerprint:
    """Return a topology with a bolt whose parts are these."""
    values: dict[str, Any] = {"role": "batch bolt", "states": {"kept": FORM}, **changes}
    return Fingerprint({"bolt": ComponentForm(**values)})


@pytest.mark.parametrize(
    ("now", "change", "text"),
    [
        (form(role="arrow bolt"), ChangeKind.COMPONENTS, "was a batch bolt and is an arrow bolt"),
        (form(rows="hours"), ChangeKind.COMPONENTS, "rows of 'bolt' is new"),
        (form(buffered="words"), ChangeKind.COMPONENTS, "buffered rows of 'bolt' is new"),
        (Fingerprint({}), ChangeKind.COMPONENTS, "component 'bolt' is gone"),
        (form(states={}), ChangeKind.STATES, "state 'kept' of 'bolt' is gone"),
        (
            form(states={"kept": StateForm("u", "opaque", "table", FORM.key, FORM.value)}),
            ChangeKind.STATES,
            "is opaque table 'u' (k string) -> (a long)",
        ),
        (
            form(states={"kept": StateForm("t", "opaque", "table", FORM.key, FORM.value)}),
            ChangeKind.COLUMNS,
            "was opaque table 't' (k string) -> (a long) Sum and is opaque table 't' (k string)",
        ),
        (
            Fingerprint(form().components, "at least once"),
            ChangeKind.COMPONENTS,
            "the guarantee was exactly once and is at least once",
        ),
    ],
)
def test_a_difference_says_what_has_to_be_allowed(
    now: Fingerprint, change: ChangeKind, text: str
) -> None:
    found = differences(form(), now)

    assert change in [each.change for each in found]
    assert text in "; ".join(each.text for each in found)
    assert f"'{change.value}'" in setting_for(found)


def test_a_spout_of_another_kind_is_refused() -> None:
    known, now = fingerprint(graph()), fingerprint(graph(opaque=True))

    why = other_spouts(known, now)
    assert why is not None
    assert "was a partitioned transactional spout and is an opaque partitioned" in why


class Windows(Total):
    """A bolt whose rows are those of windows of a size, which is a part of what they mean."""

    def __init__(self, size: str) -> None:
        self.size = size

    @property
    def traits(self) -> Traits:
        return replace(super().traits, rows=Meaning(f"windows of {self.size}", fixed="no other"))


def windows(**bolts: tuple[str, list[str]]) -> Graph:
    """Return a spout with bolts, each with the size of its windows and its tables."""
    source = MemoryTransactionalSpout({0: []}, Fields("amount long"), 1)
    builder = TransactionalTopologyBuilder("t", "spout", source)
    for id, (size, tables) in bolts.items():
        declarer = builder.set_bolt(id, Windows(size)).global_grouping("spout")
        for table in tables:
            kept = open_state("memory:", value=Fields("total long"), table=table)
            declarer.with_state(table, kept)
    return builder.build_topology().graph


@pytest.mark.parametrize("tables", [["a", "b"], ["b", "a"]])
def test_states_that_come_from_two_bolts_are_compared_with_both(tables: list[str]) -> None:
    known = fingerprint(windows(hours=("an hour", ["a"]), days=("a day", ["b"])))

    why = refused_change(windows(hours=("an hour", tables)), known, ())

    assert why is not None
    assert "expected windows of a day" in why


@pytest.mark.parametrize(
    "damaged",
    [
        [],
        {},
        {"guarantee": "exactly once", "components": []},
        {"guarantee": 1, "components": {}},
        {"guarantee": "exactly once", "components": {"bolt": "a bolt"}},
        {"guarantee": "exactly once", "components": {"bolt": {"role": "bolt", "inputs": []}}},
        *(
            {
                "guarantee": "exactly once",
                "components": {"bolt": {"role": "bolt", "inputs": inputs, "states": {}}},
            }
            for inputs in BAD_INPUTS
        ),
        *(
            {
                "guarantee": "exactly once",
                "components": {
                    "bolt": {
                        "role": "bolt",
                        "inputs": [],
                        "states": {"s": {**STORED, part: value}},
                    }
                },
            }
            for part, value in (("key", ["ab"]), ("value", ""), ("aggregates", "ab"))
        ),
    ],
)
def test_a_fingerprint_of_another_form_is_not_read(damaged: Any) -> None:
    with pytest.raises(ValueError, match="expected a fingerprint"):
        Fingerprint.from_json(damaged)
