"""An object that cannot be a bolt is refused, with what it lacks.

The numbers are those of the list of bad input that the project keeps.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.builders.bolts import Save, Split, Words, refused
from txtopo import (
    ArrowBolt,
    BasicBolt,
    TransactionalTopologyBuilder,
)
from txtopo.errors import TopologyError
from txtopo.spouts import MemoryTransactionalSpout


def test_11_a_basic_bolt_cannot_be_a_committer() -> None:
    """There is only the transactional builder, where what cannot commit is a basic bolt."""
    wrong: Any = type("Both", (Split, Save), {})

    refused(lambda made: made.set_committer_bolt("a", Split()), "'a' cannot be a committer")
    refused(lambda made: made.set_bolt("a", wrong()), "'a' has more than one role")


@pytest.mark.parametrize("make", ["set_bolt", "set_committer_bolt"])
def test_14_a_class_instead_of_an_instance(make: str) -> None:
    refused(
        lambda made: getattr(made, make)("a", Save),
        r"bolt 'a' is a class; got Save; expected an instance; write Save\(…\)",
    )
    kind: Any = MemoryTransactionalSpout
    with pytest.raises(TopologyError, match="spout 's' is a class"):
        TransactionalTopologyBuilder("t", "s", kind)


def test_14_a_missing_method_of_an_object_that_is_no_bolt() -> None:
    class Nearly:
        def prepare(self, config: object, context: object) -> None: ...

    wrong: Any = Nearly()
    refused(
        lambda made: made.set_bolt("a", wrong),
        "'a' is not a bolt; got .*expected an instance of BasicBolt, BatchBolt.*"
        "it lacks execute of BasicBolt",
    )


def test_14_a_missing_abstract_method() -> None:
    """Python itself refuses to make the object."""

    class Unfinished(Words, ArrowBolt):  # type: ignore[misc]
        pass

    class Empty(BasicBolt):
        pass

    with pytest.raises(TypeError, match=r"abstract.* '?execute"):
        Empty()  # type: ignore[abstract]
    refused(
        lambda made: made.set_bolt("a", Unfinished()),
        "'a' has more than one role; got Unfinished, which is BatchBolt and ArrowBolt",
    )


def test_14_a_method_with_other_arguments() -> None:
    class Wrong(Split):
        def execute(self, tuple: Any) -> None: ...  # type: ignore[override]

    refused(
        lambda made: made.set_bolt("a", Wrong()),
        r"execute of bolt 'a' does not fit its call; got execute\(tuple: .*"
        r"expected execute\(tuple, collector\)",
    )


def test_14_a_method_that_does_not_run_when_it_is_called() -> None:
    """What it has after its yield or await would never be done, and the txid would be committed."""

    class Yields(Split):
        def execute(self, tuple: Any, collector: Any) -> Any:
            yield collector.emit(tuple.values)

    class Waits(Words):
        async def finish_batch(self) -> None: ...  # type: ignore[override]

    refused(
        lambda made: made.set_bolt("a", Yields()),
        "execute of bolt 'a' does not run when it is called, because it is a generator",
    )
    refused(
        lambda made: made.set_bolt("a", Waits()),
        "finish_batch of bolt 'a' does not run when it is called, because it is async",
    )


def test_14_fields_that_are_none() -> None:
    class Wrong(Words):
        output_fields: Any = "word string"

    refused(
        lambda made: made.set_bolt("a", Wrong()),
        "output_fields of 'a' is of the wrong type; got 'word string'; expected Fields",
    )
