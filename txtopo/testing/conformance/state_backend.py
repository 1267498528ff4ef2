"""StateBackendSuite: what every atomic store has to do, as a class to be subclassed."""

from __future__ import annotations

from txtopo.testing.conformance.combining_suites import (
    CombiningSuite,
    HistorySuite,
    PutHistorySuite,
    PythonCombiningSuite,
    PythonHistorySuite,
)
from txtopo.testing.conformance.ledger_suites import (
    FenceSuite,
    LedgerSuite,
    OutcomeSuite,
    RestartSuite,
    UndoSuite,
)
from txtopo.testing.conformance.value_suites import (
    JsonSuite,
    KeysSuite,
    PutKeysSuite,
    PutRefusalSuite,
    RefusalSuite,
    SizeSuite,
    ValuesSuite,
)
from txtopo.testing.conformance.writing_suites import PutsSuite, ReadingSuite, TransactionalSuite


class AggregateStateSuite(
    LedgerSuite,
    FenceSuite,
    UndoSuite,
    RestartSuite,
    OutcomeSuite,
    ReadingSuite,
    KeysSuite,
    CombiningSuite,
    RefusalSuite,
    HistorySuite,
    SizeSuite,
):
    """A store that keeps aggregates and nothing else: what mode ``"log"`` has to do.

    See :class:`StateBackendSuite`, of which it is the half that merges partial aggregates.
    """


class StateBackendSuite(
    AggregateStateSuite,
    PutsSuite,
    TransactionalSuite,
    ValuesSuite,
    JsonSuite,
    PutKeysSuite,
    PutRefusalSuite,
    PutHistorySuite,
    PythonCombiningSuite,
    PythonHistorySuite,
):
    """Proves that a :class:`~txtopo.plugins.stores.StateBackend` keeps its promises.

    Who subclasses it: the tests of a plug-in, in any distribution; ``pytest`` does the rest. The
    subclass, or its module, has one fixture ``url``: an empty store of the test's own, whose scheme
    is found through the entry point group ``txtopo.state_backends`` or was registered. Each test
    opens states there by ``open_state``, as a topology does.

    What a store cannot is said by attributes of the subclass, which are the honest part of its
    documentation: ``kinds``, ``fenced``, ``atomic_reader``, and ``refused``, names out of
    :data:`~txtopo.testing.conformance.REFUSABLE`. Both directions are tried: a value that is
    declared as refused must be refused before any write, every other one must come back exactly.

    A test that fails names the rule of :mod:`txtopo.state.backend` that was broken. It takes
    seconds in a store that writes in a millisecond; ``histories`` and ``keys_max`` make it shorter.

    Example:
        In a package that brings the scheme ``mine``::

            import pytest
            from txtopo.testing.conformance import StateBackendSuite

            class TestMine(StateBackendSuite):
                refused = frozenset({"nan", "nul in keys", "nul in strings"})

                @pytest.fixture
                def url(self, tmp_path):
                    return f"mine:{tmp_path}/states"
    """
