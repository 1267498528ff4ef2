"""A name of another framework is answered with what to write."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from txtopo import Fields, StreamBuilder, open_state
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.tuples import Origin, Tuple

FIELDS = Fields("word string")


@pytest.mark.parametrize("name", ["take", "batch_size", "maxOffsetsPerTrigger"])
def test_other_names_for_the_size_of_a_batch_are_answered_with_ours(name: str) -> None:
    spout: Any = MemoryTransactionalSpout

    with pytest.raises(TypeError, match=r"the most rows of a batch are batch_rows_max=…"):
        spout({0: [["a"]]}, FIELDS, **{name: 5})


def test_an_unknown_argument_is_answered_with_the_similar_one() -> None:
    spout: Any = MemoryTransactionalSpout

    with pytest.raises(TypeError, match=r"did you mean 'partitions'\?"):
        spout(partition={0: [["a"]]}, fields=FIELDS, batch_rows_max=1)


def test_a_field_is_not_an_attribute_of_a_tuple() -> None:
    row: Any = Tuple(["cat"], Origin(None, "words", "default", FIELDS))

    with pytest.raises(AttributeError, match=r"write tuple\['word'\]"):
        _ = row.word
    with pytest.raises(AttributeError, match=r"no attribute 'words'$"):
        _ = row.words
    assert copy.copy(row).values == pickle.loads(pickle.dumps(row)).values == ["cat"]


def test_names_of_dataframes_are_answered_on_streams() -> None:
    lines: Any = StreamBuilder("s").source(
        "lines", MemoryTransactionalSpout({0: [["a"]]}, FIELDS, 1)
    )

    with pytest.raises(AttributeError, match=r"write aggregate\(count=Count\(\)\)"):
        lines.group_by("word").count()
    with pytest.raises(AttributeError, match=r"write filter\("):
        lines.where("word = 'a'")


def test_a_state_outside_of_a_run_is_not_written() -> None:
    state: Any = open_state("memory:")

    with pytest.raises(AttributeError, match="it in a committer"):
        state.put("a", 1)
