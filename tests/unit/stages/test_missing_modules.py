"""Item 23: a module of the user's that the workers do not have."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from tests.unit.stages.running import RowsSpout, Topology, run_of, spout, stage_of
from txtopo.errors import TopologyError
from txtopo.stages.pickling import dumps, loads
from txtopo.stages.stage_context import StageContext
from txtopo.stages.user_errors import error_of, failure_of


def test_23_a_missing_module_says_what_to_ship_and_how(stage: StageContext) -> None:
    pickled = pickled_object_of_a_module_that_is_gone()
    with pytest.raises(ModuleNotFoundError) as missing:
        loads(pickled)

    error = error_of(failure_of(missing.value, stage, "split", txid=3, task=0))

    assert isinstance(error, TopologyError)
    assert "cannot import the module 'gone_module'" in str(error)
    assert "--py-files" in str(error)
    assert "txid 3" in error.__notes__[0]


def pickled_object_of_a_module_that_is_gone() -> bytes:
    module = ModuleType("gone_module")
    exec("class Gone: pass", module.__dict__)
    sys.modules["gone_module"] = module
    try:
        return dumps(module.__dict__["Gone"]())
    finally:
        del sys.modules["gone_module"]


@pytest.fixture
def stage() -> StageContext:
    topology = Topology(spout(RowsSpout([[]], "n long")))
    return stage_of(topology.compiled, run_of(1), 0, task_id=1)
