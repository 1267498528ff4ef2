"""What cannot travel to the tasks is found when the topology is built, by the path to it."""

from __future__ import annotations

import functools
import re
import runpy
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.builders.bolts import WORD, Holding, Save, ToFirst, Words, builder
from txtopo import TransactionalTopologyBuilder
from txtopo.errors import TopologyError, TopologyWarning
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.stages.pickling import dumps, loads


def refused(held: object) -> TopologyError:
    made = builder()
    made.set_bolt("split", Holding(held)).shuffle_grouping("spout")
    made.set_bolt("save", Save()).shuffle_grouping("split")
    with pytest.raises(TopologyError, match="bolt 'split' cannot be pickled") as caught:
        made.build_topology()
    return caught.value


LOCK = threading.Lock()
UNPICKLABLE = {
    "a lock": (LOCK, "self.held", "_thread.lock"),
    "deep": (SimpleNamespace(client=SimpleNamespace(lock=LOCK)), "self.held.client.lock", "lock"),
    "in a dict": ({"a": [1, LOCK]}, "self.held['a'][1]", "_thread.lock"),
    "in a tuple": ((1, LOCK), "self.held[1]", "_thread.lock"),
    "a generator": ((n for n in range(3)), "self.held", "generator"),
    "in a closure": ((lambda lock: lambda: lock)(LOCK), "self.held variable 'lock'", "lock"),
    "in a partial": (functools.partial(print, LOCK), "self.held.args[0]", "_thread.lock"),
    "a bound method": (SimpleNamespace(lock=LOCK).__repr__, "self.held", "method-wrapper"),
}


@pytest.mark.parametrize(("held", "path", "kind"), UNPICKLABLE.values(), ids=UNPICKLABLE)
def test_21_an_unpicklable_attribute_is_named_by_its_path(
    held: object, path: str, kind: str
) -> None:
    error = refused(held)

    assert error.path == path
    assert re.search(rf"{re.escape(path)} is a .*{kind}.*; create it in prepare\(\)", str(error))


def test_21_a_socket() -> None:
    with socket.socket() as opened:
        assert "self.held is a socket.socket" in str(refused(opened))


def test_21_an_open_file(tmp_path: Any) -> None:
    with (tmp_path / "f").open("w") as opened:
        assert "self.held is a _io.TextIOWrapper" in str(refused(opened))


def test_21_a_lock_in_a_spout() -> None:
    spout = MemoryTransactionalSpout({}, WORD, 1)
    spout.__dict__["lock"] = LOCK
    made = TransactionalTopologyBuilder("t", "s", spout)
    made.set_bolt("save", Save()).shuffle_grouping("s")

    with pytest.raises(TopologyError, match=r"spout 's' cannot be pickled: self.lock is a _thread"):
        made.build_topology()


def test_21_a_lock_in_a_custom_grouping() -> None:
    made = builder()
    made.set_bolt("save", Save()).custom_grouping("spout", ToFirst(LOCK))

    with pytest.raises(
        TopologyError,
        match=r"custom grouping of bolt 'save' cannot be pickled: self.grouping.held is a _thread",
    ):
        made.build_topology()


class CannotBeReadBack(Words):
    def __reduce__(self) -> Any:
        return int, ("x",)


def test_21_what_cannot_be_read_back() -> None:
    made = builder()
    made.set_bolt("a", CannotBeReadBack()).shuffle_grouping("spout")
    made.set_bolt("save", Save()).shuffle_grouping("a")

    with pytest.raises(TopologyError, match="'a' can be pickled but not read back: ValueError"):
        made.build_topology()


@pytest.mark.spark
def test_22_a_session_and_a_dataframe_live_in_the_driver_only(spark: Any) -> None:
    for held, path in ((spark, "self.held"), ({"f": spark.range(1)}, "self.held['f']")):
        error = refused(held)

        assert error.path == path
        assert "exist only in the driver; read the data with a spout" in str(error)


MAIN = """
from tests.unit.builders.bolts import Words, Save, builder

LIMIT = 3

class Here(Save):
    def __init__(self):
        self.limit = LIMIT

    def finish_batch(self):
        return super().finish_batch()

made = builder()
made.set_bolt("here", Here()).shuffle_grouping("spout")
prototype = made.build_topology().graph.components["here"].prototype
"""


def test_23_a_class_of_the_main_module_travels_by_value(tmp_path: Path) -> None:
    """A worker has another main module, as this process has again when the script is done."""
    script = tmp_path / "script.py"
    script.write_text(MAIN)

    prototype = runpy.run_path(str(script), run_name="__main__")["prototype"]

    assert type(prototype).__module__ == "__main__"
    assert loads(dumps(prototype)).limit == 3


def test_24_a_large_bolt_is_warned_of() -> None:
    made = builder()
    made.set_bolt("save", Holding(b"x" * (11 << 20))).shuffle_grouping("spout")
    made.set_bolt("keep", Save()).shuffle_grouping("save")

    with pytest.warns(TopologyWarning, match=r"bolt 'save' is too large; got 11.0 MiB") as caught:
        made.build_topology()
    assert caught[0].filename == __file__
