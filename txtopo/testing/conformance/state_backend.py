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
    """Proves a store that keeps only aggregates, as in mode ``"log"``.

    It is the half of :class:`StateBackendSuite` that merges partial aggregates; see there.
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

    Subclass it in the tests of a plug-in, in any distribution, and run ``pytest``. The subclass or
    its module needs one fixture ``url``: an empty store for each test. The scheme of the URL has to
    be registered, or found through the entry point group ``txtopo.state_backends``. Each test opens
    states there with ``open_state``, as a topology does.

    Attributes of the subclass declare what the store cannot do: ``kinds``, ``fenced``,
    ``atomic_reader``, ``decimal_digits``, and ``refused``, which has names from
    :data:`~txtopo.testing.conformance.REFUSABLE`. Both directions are tested: a declared value must
    be refused before any write, and every other one must come back exactly.

    A failing test names the rule of :mod:`txtopo.state.backend` that is broken. The suite takes
    seconds for a store that writes in a millisecond; ``histories`` and ``keys_max`` shorten it.

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
