"""StateBackendSuite: what every atomic store has to do, as a class to be subclassed."""

from __future__ import annotations

from txtopo.testing.conformance.combining_suites import (
    CombiningSuite,
    HistorySuite,
    PutHistorySuite,
    PythonCombiningSuite,
    PythonHistorySuite,
)
from txtopo.testing.conformance.copy_suites import CopySuite, PutCopySuite
from txtopo.testing.conformance.dying_suites import DyingPutsSuite, DyingSuite, RaisingSuite
from txtopo.testing.conformance.evolution_suites import BeginningSuite, EvolutionSuite
from txtopo.testing.conformance.expiry_dying_suites import DyingExpirySuite
from txtopo.testing.conformance.group_suites import GroupSuite, PutGroupSuite
from txtopo.testing.conformance.keys_alone_suites import KeysAloneSuite
from txtopo.testing.conformance.ledger_suites import (
    FenceSuite,
    LedgerSuite,
    OutcomeSuite,
    RestartSuite,
    UndoSuite,
)
from txtopo.testing.conformance.range_suites import ExpirySuite, RangeSuite
from txtopo.testing.conformance.together_suites import TogetherSuite
from txtopo.testing.conformance.value_suites import (
    JsonSuite,
    KeysSuite,
    PutKeysSuite,
    PutRefusalSuite,
    RefusalSuite,
    SizeSuite,
    ValuesSuite,
)
from txtopo.testing.conformance.witness_suites import PutWitnessSuite, WitnessSuite
from txtopo.testing.conformance.writing_suites import PutsSuite, ReadingSuite, TransactionalSuite


class AggregateStateSuite(
    LedgerSuite,
    BeginningSuite,
    FenceSuite,
    UndoSuite,
    RestartSuite,
    OutcomeSuite,
    GroupSuite,
    CopySuite,
    ReadingSuite,
    KeysSuite,
    CombiningSuite,
    RefusalSuite,
    HistorySuite,
    SizeSuite,
    WitnessSuite,
    TogetherSuite,
    DyingSuite,
):
    """Proves a store that keeps only aggregates, as in mode ``"log"``.

    It is the half of :class:`StateBackendSuite` that merges partial aggregates; see there.
    """


class StateBackendSuite(
    AggregateStateSuite,
    PutsSuite,
    TransactionalSuite,
    PutGroupSuite,
    PutCopySuite,
    EvolutionSuite,
    RangeSuite,
    ExpirySuite,
    ValuesSuite,
    KeysAloneSuite,
    JsonSuite,
    PutKeysSuite,
    PutRefusalSuite,
    PutHistorySuite,
    PythonCombiningSuite,
    PythonHistorySuite,
    PutWitnessSuite,
    DyingPutsSuite,
    DyingExpirySuite,
    RaisingSuite,
):
    """Proves that a :class:`~txtopo.plugins.stores.StateBackend` keeps its promises.

    Subclass it in the tests of a plug-in, in any distribution, and run ``pytest``. The subclass or
    its module needs one fixture ``url``: an empty store for each test. The scheme of the URL has to
    be registered, or found through the entry point group ``txtopo.state_backends``. Each test opens
    states there with ``open_state``, as a topology does.

    Attributes of the subclass declare what the store cannot do: ``kinds``, ``fenced``,
    ``atomic_reader``, ``decimal_digits``, and ``refused``, which has names from
    :data:`~txtopo.testing.conformance.REFUSABLE`. Both directions are tested: a declared value must
    be refused before any write, and every other one must come back exactly.

    A backend that declares ``groups`` is given groups of txids, too; another one never.

    A failing test names the rule of :mod:`txtopo.state.backend` that is broken.

    The suite prints at its start how long it takes: below a minute with 5 ms a commit. These
    attributes say how much the long tests do; they are None, and then it is as much as fits into
    the minute (:class:`~txtopo.testing.conformance.driver.StoreFixtures` has them in full):

    * ``histories``: random histories, up to 200. Each takes about six commits.
    * ``keys_max``: keys of the largest state, up to 100,000; each is written four times.
    * ``many``: rows of a bulk write, up to 2,500; there are 40 such writes.
    * ``long``: True, or ``TXTOPO_LONG=1`` in the environment, takes the upper limits, whatever the
      store needs for them.

    Example:
        In a package that provides the scheme ``mine``::

            import pytest
            from txtopo.testing.conformance import StateBackendSuite

            class TestMine(StateBackendSuite):
                refused = frozenset({"nan", "nul in keys", "nul in strings"})

                @pytest.fixture
                def url(self, tmp_path):
                    return f"mine:{tmp_path}/states"
    """
