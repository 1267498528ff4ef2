"""Globals of a script: the script's own in the driver, and a copy that is warned of elsewhere."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections import defaultdict
from types import FunctionType
from typing import Any

import pytest

from tests.harness.runs import LOCAL
from txtopo import Topology
from txtopo.builders.script_globals import changed_globals
from txtopo.errors import TopologyWarning
from txtopo.stages.pickling import Prototype, dumps

SCRIPT = """
from txtopo import *
from txtopo.spouts import MemoryTransactionalSpout

DATABASE = {}
seen = 0

class UpdateGlobalCount(BatchBolt, Committer):
    # The program of Storm's page on transactional topologies, with its static map.
    def prepare(self, config, context, collector, attempt):
        self.attempt, self.sum = attempt, 0

    def execute(self, tuple):
        self.sum += tuple["n"]

    def finish_batch(self):
        global seen
        seen += 1
        txid, count = DATABASE.get("GLOBAL", (0, 0))
        if txid != self.attempt.txid:
            DATABASE["GLOBAL"] = (self.attempt.txid, count + self.sum)

spout = MemoryTransactionalSpout({0: [[1]] * 40}, Fields("n long"), 2)
builder = TransactionalTopologyBuilder("global-count", "spout", spout)
builder.set_bolt("sum", UpdateGlobalCount()).global_grouping("spout")
"""


def script(text: str) -> dict[str, Any]:
    """Run a text as the main module, and return its globals."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "script.py", "exec"), space)
    return space


def built(space: dict[str, Any]) -> Topology:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopologyWarning)
        topology: Topology = space["builder"].build_topology()
    return topology


def test_a_dict_of_the_script_is_the_database_of_its_committer() -> None:
    space = script(SCRIPT)

    with built(space).start(config=LOCAL) as run:
        run.process_all_available(60)

    assert space["DATABASE"] == {"GLOBAL": (20, 40)}
    assert space["seen"] == 20


def test_a_class_of_the_script_keeps_its_methods_when_a_topology_is_built() -> None:
    space = script(SCRIPT)
    method = space["UpdateGlobalCount"].finish_batch

    built(space)

    assert space["UpdateGlobalCount"].finish_batch is method
    assert method.__globals__ is space


@pytest.mark.integration
def test_all_copies_in_a_worker_share_its_copy_of_a_global() -> None:
    """A cache that a script keeps in a global is filled once in each worker, not in each batch."""
    topology = built(script(SCRIPT))
    sent = dumps(Prototype(topology.graph.components["sum"].prototype))
    worker = (
        "import pickle, sys; prototype = pickle.loads(sys.stdin.buffer.read());"
        "first, second = prototype.copy(), prototype.copy();"
        "first.finish_batch.__globals__['DATABASE']['k'] = 1;"
        "print(first is not second, second.finish_batch.__globals__['DATABASE'])"
    )

    ran = subprocess.run(
        [sys.executable, "-c", worker], input=sent, capture_output=True, check=True
    )

    assert ran.stdout.decode().strip() == "True {'k': 1}"


def test_a_global_that_a_bolt_changes_is_warned_of_by_name() -> None:
    space = script(SCRIPT)

    with pytest.warns(TopologyWarning) as caught:
        space["builder"].build_topology()

    texts = sorted(str(each.message) for each in caught)
    assert [text.partition("; ")[0] for text in texts] == [
        "bolt 'sum' changes the global 'DATABASE' of its script, in "
        "UpdateGlobalCount.finish_batch()",
        "bolt 'sum' changes the global 'seen' of its script, in UpdateGlobalCount.finish_batch()",
    ]
    assert caught[0].filename == __file__


CHANGES = {
    "a name": ("global N; N += 1", {"N"}),
    "an element": ("T[k] = 1", {"T"}),
    "an element of an element": ("T[k][0] += 1", {"T"}),
    "a deleted element": ("del T[k]", {"T"}),
    "a method": ("L.append(k)", {"L"}),
    "within a comprehension": ("[L.append(each) for each in range(k)]", {"L"}),
    "within a function of the script": ("helper(k)", {"T"}),
    "an attribute": ("S.limit = k", {"S"}),
    "two at once": ("T[k], L[0] = 1, 2", {"T", "L"}),
    "what is only read": ("return T.get(k), L[0], T.copy(), len(L), S.limit", set()),
    "what is local": ("t = {}; t[k] = T.get(k); t.update(T); l = [k]; l.append(L)", set()),
    "what a local name hides": ("T = {}; T[k] = 1", set()),
}


@pytest.mark.parametrize(("body", "changed"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_found_where_the_code_shows_it(body: str, changed: set[str]) -> None:
    space = script(f"def helper(k): T[k] = 1\ndef function(k): {body}")
    space |= {"T": defaultdict(list), "L": [], "N": 0, "S": FunctionType}

    assert set(changed_globals([space["function"]])) == changed


def test_what_workers_import_is_not_looked_at() -> None:
    assert changed_globals([changes_kept]) == {}


KEPT: dict[int, int] = {}


def changes_kept(k: int) -> None:
    KEPT[k] = 1
