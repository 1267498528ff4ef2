"""Declared fields: those that no JSON object has are named, and required ones are never NULL."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.harness.runs import LOCAL, Storage, run_to_end
from txtopo import (
    BasicBolt,
    ConfigError,
    Fields,
    TopologyError,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.bolts import Append
from txtopo.errors import EmitError
from txtopo.kafka.formats.debezium import Debezium
from txtopo.spouts import FilesTransactionalSpout, MemoryTransactionalSpout


def test_a_field_that_no_record_of_the_first_batch_has_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each task looks at the full lines of its first block. A field of one of them is there."""
    records: list[Any] = [{"user": "a", "amount": 1}] * 40
    records[39] = {"user": "b", "note": None, "meta": {"usr": 1}}
    (tmp_path / "a").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "b").write_text('{"user": "c"}\n')
    fields = Fields("usr string, amount long, note string")
    spout = FilesTransactionalSpout(tmp_path, fields, "json", batch_files_max=1)
    builder = TransactionalTopologyBuilder("seen", "files", spout, 2)
    builder.set_bolt("kept", Append(open_state("memory:"), fields)).shuffle_grouping("files")
    with caplog.at_level(logging.WARNING, "txtopo.spouts"):
        run_to_end(builder.build_topology(), Storage.in_memory())

    (told,) = (each.getMessage() for each in caplog.records if "none of" in each.getMessage())
    assert "spout 'files': none of the first 39 JSON objects has the declared field 'usr'" in told
    assert told.endswith("undeclared fields there are meta, user; did you mean 'user'?")


class Forwards(BasicBolt):
    output_fields = Fields("word string!")

    def execute(self, tuple: Any, collector: Any) -> None:
        collector.emit([tuple["word"]])


@pytest.mark.parametrize("where", ["words", "forwards"])
def test_no_spout_or_bolt_emits_null_in_a_required_field(where: str) -> None:
    declared = "word string!" if where == "words" else "word string"
    spout = MemoryTransactionalSpout({0: [["a"], [None]]}, Fields(declared), 1)
    builder = TransactionalTopologyBuilder("required", "words", spout)
    builder.set_bolt("forwards", Forwards()).shuffle_grouping("words")
    kept = Append(open_state("memory:"), Fields("word string"))
    builder.set_bolt("kept", kept).shuffle_grouping("forwards")

    with pytest.raises(EmitError, match=f"{where!r} emitted NULL .* in field 'word', which is req"):
        run_to_end(builder.build_topology(), Storage.in_memory(), LOCAL)


def test_where_nobody_checks_it_a_required_field_is_refused() -> None:
    with pytest.raises(TopologyError, match="value column 'n' of a state is required"):
        open_state("memory:", value=Fields("n long!"))
    with pytest.raises(ConfigError, match="a delete has only the key; leave out its !"):
        Debezium("id long, n long!", key="id")
