"""BackingMapSuite: what every backing map has to do."""

from __future__ import annotations

from txtopo.testing.conformance.backing_map_comparing import ComparingSuite
from txtopo.testing.conformance.backing_map_crashes import CrashSuite
from txtopo.testing.conformance.backing_map_texts import TextsSuite


class BackingMapSuite(TextsSuite, CrashSuite, ComparingSuite):
    """Shows a :class:`txtopo.state.BackingMap` right; fails at the rule that it breaks.

    A subclass has a fixture ``open_map``: a function without arguments that opens the store of the
    test, which is empty when the test begins, each time anew.

    Example:
        >>> class TestFolder(BackingMapSuite):
        ...     @pytest.fixture
        ...     def open_map(self, tmp_path):
        ...         return lambda: Folder(f"folder:{tmp_path}")
    """
