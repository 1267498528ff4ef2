"""Values of type json: what a committer of the user's own keeps beside numbers and text."""

from __future__ import annotations

from typing import Any

import pytest

from txtopo.errors import StateUsageError, ValueRefusedError
from txtopo.state import Fields, State, StateTransaction
from txtopo.testing.conformance.assertions import Rule, proves
from txtopo.testing.conformance.driver import putting
from txtopo.testing.conformance.exactly import exactly
from txtopo.testing.conformance.subject import Drive, Subject
from txtopo.testing.conformance.values_suite import LARGEST

VALUES: tuple[Any, ...] = (
    *({}, [], "", 0, -0.0, 1, 1.0, True, False, "null", [None], {"": None}),
    *(LARGEST, -LARGEST - 1, 2**53 + 1, 0.1, 5e-324, 1.7976931348623157e308),
    *("quote\"s'`\\ \\N %s", "é\N{ELEPHANT}\ufb00", "nul \0", "surrogate \ud800", " blanks "),
    {"b": [1, 2.5, {"c": [[], {}]}], "a": "x" * 700, "é\0'\"": {"deep": [[[[True]]]]}},
)
_REFUSED: tuple[Any, ...] = (LARGEST + 1, float("nan"), [float("inf")], {"a": [-LARGEST - 2]})
_WRONG: tuple[Any, ...] = ({1: "a"}, (1, 2), [{"a": {1, 2}}], b"a", [1j])


class JsonSuite(Subject):
    """Each value comes back as it was: 1 is not 1.0 and not True."""

    @proves(Rule.EXACT)
    def test_json_comes_back_as_it_was(self, url: str, drive: Drive) -> None:
        store = drive(self._documents(url))
        rows: dict[str, Any] = {f"key {at}": value for at, value in enumerate(VALUES)}

        store.run(1, putting({**rows, "nothing": None}))
        assert exactly(store.contents()) == exactly({**rows, "nothing": None})
        with store.state.reader() as reader:
            assert exactly(reader.get("key 4")) == exactly(-0.0)

    @proves(Rule.UNDO)
    def test_an_update_of_json_can_be_undone(self, url: str, drive: Drive) -> None:
        """And changing the value that was read changes nothing that is stored."""
        store = drive(self._documents(url))
        store.run(1, putting({"a": {"seen": [1]}}))

        def body(state: StateTransaction) -> Any:
            state.get("a")["seen"].append("not written")
            return state.update("a", lambda old: {**old, "seen": [*old["seen"], 2]})

        assert store.run(2, body) == {"seen": [1, 2]}
        assert store.run(2, body, 1) == {"seen": [1, 2]}
        assert store.contents() == {"a": {"seen": [1, 2]}}
        store.run(2, putting({}), 2)
        assert store.contents() == {"a": {"seen": [1]}}

    @pytest.mark.parametrize("value", [*_REFUSED, *_WRONG], ids=repr)
    @proves(Rule.EXACT)
    def test_what_json_would_change_is_refused(self, url: str, drive: Drive, value: Any) -> None:
        store = drive(self._documents(url))
        store.run(1, putting({"a": 1}))

        with pytest.raises(StateUsageError if value in _WRONG else ValueRefusedError, match="json"):
            store.run(2, putting({"a": 2, "b": value}))
        assert store.contents() == {"a": 1}

    def _documents(self, url: str) -> State:
        return self.declared(url, "documents", Fields("key string"), Fields("document json"))
