"""Suites that show a plug-in right: pytest classes to be subclassed. They need pytest."""

from txtopo.testing.conformance.assertions import Rule
from txtopo.testing.conformance.backing_map import BackingMapSuite
from txtopo.testing.conformance.refusable import REFUSABLE, Refusable
from txtopo.testing.conformance.size_suite import MillionKeysSuite
from txtopo.testing.conformance.spout import SpoutSuite
from txtopo.testing.conformance.spout_rules import SpoutRule
from txtopo.testing.conformance.spout_source import SpoutSource
from txtopo.testing.conformance.state_backend import AggregateStateSuite, StateBackendSuite

__all__ = [
    "AggregateStateSuite",
    "BackingMapSuite",
    "MillionKeysSuite",
    "REFUSABLE",
    "Refusable",
    "Rule",
    "SpoutRule",
    "SpoutSource",
    "SpoutSuite",
    "StateBackendSuite",
]
