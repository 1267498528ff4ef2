"""Declared fields: those that no JSON object has are named, and required ones are never NULL."""

from __future__ import annotations

import json
import logging
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from tests.harness.runs import LOCAL, Storage, run_to_end
from tests.unit.sources.driving import Emitted, Planner, context
from txtopo import (
    BasicBolt,
    Config,
    ConfigError,
    Fields,
    TopologyError,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    open_state,
)
from txtopo.bolts import Append
from txtopo.collector import SeenFields
from txtopo.errors import EmitError
from txtopo.kafka.formats.debezium import Debezium
from txtopo.spouts import FilesTransactionalSpout, MemoryTransactionalSpout


def test_a_field_that_no_record_of_the_first_batch_has_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each task looks at its first records. A field of one of them is there."""
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
    assert "spout 'files': none of the first 40 JSON objects has the declared field 'usr'" in told
    assert told.endswith("undeclared fields there are 'meta', 'user'; did you mean 'user'?")


def test_all_files_of_the_first_batch_with_objects_are_looked_at(tmp_path: Path) -> None:
    """Not the batches before it, whose records are none, nor the later ones."""
    batches = [{"a": "[1]\n"}, {"b": '{"usr": 1}\n', "c": '{"user": 2}\n'}, {"d": '{"note": 3}\n'}]
    fields, seen = Fields("user long, note long"), list[SeenFields]()
    for number, files in enumerate(batches):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
    spouts = [FilesTransactionalSpout(tmp_path / str(n), fields, "json") for n in range(3)]
    emitter, letters = spouts[0].emitter(Config(), context()), list[Any]()
    collector = Emitted(spouts[0], letters, saw=seen.append).collector
    for txid, spout in enumerate(spouts, 1):
        emitter.emit_batch(TransactionAttempt(txid), Planner(spout).plan(), collector)
    collector.close()

    assert len(letters) == 1
    found = reduce(SeenFields.add, seen)
    assert found == SeenFields(2, frozenset({"note"}), frozenset({"usr"}))


def test_names_of_fields_in_a_warning_are_few_short_and_printable() -> None:
    others = frozenset({"1\n", "2" * 99, *map(str, range(30, 40))})
    (told,) = SeenFields(1, frozenset({"user"}), others).warnings("spout 's'")

    shown = [r"'1\n'", "'" + "2" * 59, *(f"'{number}'" for number in range(30, 38))]
    assert told.endswith(f"fields there are {', '.join(shown)}, …")


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
