"""State plug-ins that break their interface: the error names what they did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.faults.bad_inputs.evidence import KEPT
from tests.faults.bad_inputs.numbers import bad_input
from tests.faults.bad_inputs.topologies import keeping
from tests.harness.runs import LOCAL, Storage, run_to_end
from txtopo import TransactionAttempt
from txtopo.errors import PlugInError, StoreUnavailable, TopologyError
from txtopo.plugins.stores import (
    BackendFactory,
    Claim,
    Contents,
    Key,
    Row,
    RowBackend,
    StateTable,
    Writes,
)
from txtopo.state import Ledger, open_state, register_backend


class Notebook(RowBackend):
    """A state on an attribute; right as it is."""

    def __init__(self, table: StateTable) -> None:
        super().__init__(table)
        self.contents = Contents()

    def load(self) -> Contents:
        return self.contents

    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> Any:
        rows = {key: row for key, row in {**self.contents.rows, **changes}.items() if row}
        self.contents = Contents(ledger, rows)
        return True


class Silent(Notebook):
    """Writes, and returns nothing."""

    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> Any:
        super().replace(expected, ledger, changes)


class Cheerful(Notebook):
    """Says that all went well instead of what was written."""

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Any:
        super().commit(attempt, writes)
        return True


class Forgetful(Notebook):
    """Returns the ledger as it was before the commit."""

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        before = self.contents.ledger
        super().commit(attempt, writes)
        assert before is not None
        return before


class Careless(Notebook):
    """Claims without saying so."""

    def claim(self, claim: Claim) -> Any:
        super().claim(claim)


class Columned(Notebook):
    """Has a column for each field of the ledger that there was when it was written."""

    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> Any:
        known = (ledger.topology, ledger.epoch, ledger.txid, ledger.writer_epoch, ledger.attempt)
        return super().replace(expected, Ledger(*known), changes)


class Unfinished(RowBackend):
    """Lacks a method."""

    def load(self) -> Contents:
        return Contents()


class Alike:
    """Has a method of a backend, but is none."""

    def claim(self, claim: Claim) -> None: ...


def raising(error: Exception) -> BackendFactory:
    def factory(url: str, table: StateTable) -> RowBackend:
        raise error

    return factory


def started_with(factory: Callable[[str, StateTable], Any]) -> Storage:
    """Return a storage whose states a factory makes."""
    register_backend("bad", factory)
    return Storage("bad://user:secret@host")


@bad_input(68)
@pytest.mark.parametrize(
    ("factory", "error", "match"),
    [
        (
            raising(RuntimeError("no licence for bad://user:secret@host")),
            TopologyError,
            r"plug-in of state 'kept' in bad://user:\*\*\*@host cannot be opened; got "
            r"RuntimeError: no licence for bad://user:\*\*\*@host; expected a StateBackend",
        ),
        (
            raising(ConnectionRefusedError("nobody there")),
            StoreUnavailable,
            r"cannot open state 'kept' in bad://user:\*\*\*@host: ConnectionRefusedError: nobody",
        ),
        (
            lambda url, table: Unfinished(table),  # type: ignore[abstract]
            TopologyError,
            "got TypeError: Can't instantiate abstract class Unfinished with abstract .*replace",
        ),
        (
            lambda url, table: Alike(),
            TopologyError,
            "did not return a backend; got Alike; expected an object derived from StateBackend; "
            "it lacks close, commit, create, snapshot",
        ),
        (lambda url, table: None, TopologyError, "did not return a backend; got NoneType"),
    ],
    ids=["raises", "cannot connect", "lacks a method", "is something else", "is nothing"],
)
def test_a_plug_in_that_cannot_be_opened_is_found_before_anything_runs(
    factory: Callable[[str, StateTable], Any], error: type[Exception], match: str
) -> None:
    storage = started_with(factory)

    with pytest.raises(error, match=match):
        run_to_end(keeping(storage, [["a", 1]]), storage)
    assert storage.ensemble.nodes == {}


@bad_input(68)
@pytest.mark.parametrize(
    ("backend", "match", "txid"),
    [
        (Silent, "replace of Silent returned None; expected True or False: whether it was", 0),
        (Careless, "claim of Careless returned None; expected the Ledger of epoch 1, as it", 0),
        (
            Cheerful,
            "commit of Cheerful returned True; expected the Ledger of epoch 1 that holds",
            1,
        ),
        (Forgetful, r"commit of Forgetful returned Ledger\(.*txid=0.* that holds 1:0@1, as it", 1),
    ],
)
def test_a_plug_in_that_does_not_say_what_it_wrote_ends_the_run(
    backend: type[Notebook], match: str, txid: int
) -> None:
    """To continue would rely on a write that perhaps was not made."""
    kept: list[Notebook] = []

    def factory(url: str, table: StateTable) -> Notebook:
        kept.append(backend(table))
        return kept[-1]

    storage = started_with(factory)
    alone = replace(LOCAL, group_txids_max=1)
    with pytest.raises(PlugInError, match=f"{match}.*fix the plug-in, and check what the store"):
        run_to_end(keeping(storage, [["a", 1], ["b", 2]]), storage, alone)

    current, _ = storage.ensemble.nodes["/keeping/current"]
    assert b'"current":1' in current
    assert max(each.contents.ledger.txid for each in kept if each.contents.ledger) == txid


@bad_input(68)
def test_a_plug_in_that_drops_fields_of_the_ledger_is_refused_before_anything_is_planned() -> None:
    storage = started_with(lambda url, table: Columned(table))

    with pytest.raises(
        PlugInError,
        match=r"Columned does not store the whole ledger.*these differ: component, state, "
        r"ensemble, term; .*dataclasses\.asdict\(ledger\)",
    ):
        run_to_end(keeping(storage, [["a", 1]]), storage)
    assert not [path for path in storage.ensemble.nodes if "/batches/" in path]


@bad_input(68)
def test_a_factory_that_cannot_be_called_is_refused() -> None:
    wrong: Any = "state_backends.memory"

    with pytest.raises(TopologyError, match="plug-in 'bad' is not a factory; got 'state_backends"):
        register_backend("bad", wrong)


@bad_input(68)
@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("no_such_module:open_backend", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("state_backends.memory:nothing", "AttributeError: .* no attribute 'nothing'"),
        ("state_backends.memory:__doc__", "is not a factory; got 'A state in this process"),
    ],
)
def test_an_installed_plug_in_that_cannot_be_loaded_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, match: str
) -> None:
    folder = tmp_path / "broken-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[txtopo.state_backends]\nbroken = {target}\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(TopologyError, match=f"the state plug-in 'broken' .*{match}"):
        open_state("broken:", table=KEPT)
