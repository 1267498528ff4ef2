"""Suites that prove a plug-in right: pytest classes to be subclassed. They need pytest."""

# First, since it has pytest rewrite the assertions of all modules that are imported after it.
from txtopo.testing.conformance.rules import REFUSABLE, MapRule, Refusable, Rule

# isort: split
from txtopo.testing.conformance.backing_map import BackingMapSuite
from txtopo.testing.conformance.ensemble_fixtures import EnsembleRule
from txtopo.testing.conformance.spout import SpoutSuite
from txtopo.testing.conformance.spout_source import SpoutRule, SpoutSource
from txtopo.testing.conformance.state_backend import AggregateStateSuite, StateBackendSuite
from txtopo.testing.conformance.transactional_state import TransactionalStateSuite
from txtopo.testing.conformance.value_suites import MillionKeysSuite

__all__ = [
    "AggregateStateSuite",
    "BackingMapSuite",
    "EnsembleRule",
    "MapRule",
    "MillionKeysSuite",
    "REFUSABLE",
    "Refusable",
    "Rule",
    "SpoutRule",
    "SpoutSource",
    "SpoutSuite",
    "StateBackendSuite",
    "TransactionalStateSuite",
]
