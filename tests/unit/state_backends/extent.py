"""How much the suites do with our own stores: the same on each machine, and more in test-all."""

from __future__ import annotations

from tests.harness.chance import most
from txtopo.testing.conformance.driver import StoreFixtures
from txtopo.testing.conformance.dying_suites import DyingPutsSuite
from txtopo.testing.conformance.pace import (
    DEATHS_MAX,
    DEATHS_MIN,
    HISTORIES_MAX,
    HISTORIES_MIN,
    KEYS_MAX,
    MANY_MAX,
)


class OwnExtent(StoreFixtures):
    """Stands before the suite among the bases of a store's class.

    ``tests/unit/testing/conformance`` shows that the lower limits find each store that is broken.
    A store that writes many rows in another way than a few overrides the number at which it does.
    """

    histories = most(HISTORIES_MAX, otherwise=HISTORIES_MIN)
    keys_max = most(KEYS_MAX, otherwise=1_000)
    many = most(MANY_MAX, otherwise=50)
    deaths = most(DEATHS_MAX, otherwise=DEATHS_MIN)


SLOW_DEATHS = frozenset(
    {
        "test_a_transactional_merge_whose_writer_dies_is_added_once",
        "test_a_group_whose_writer_dies_is_there_whole_or_not_at_all",
        "test_a_large_merge_whose_writer_dies_at_any_time_is_there_whole_or_not_at_all",
        "test_a_put_whose_writer_dies_is_there_whole_or_not_at_all",
        "test_a_large_put_whose_writer_dies_at_any_time_is_there_whole_or_not_at_all",
    }
)
"""What runs in ``make test-all`` alone: some fifteen processes each, and the clock kills two of
them. Writers die in a merge, a redo, a first start, a change of the table and an expiry all the
same.
"""

REDO_OF_MERGES = "test_a_redo_whose_writer_dies_leaves_one_of_both_attempts"
"""The same of a store whose redo of final values is tried."""

TIMED_COMMIT = "test_a_commit_is_timed_and_the_suite_says_how_long_it_takes"
"""It times a commit and prints how much the suite does with a store. What the suites do with our
stores does not depend on that time, so one store is enough: the one in memory.
"""

_REDO = ("_redo_whose_", "_redo_of_puts_whose_")
_EXPIRY = "_expiry_whose_"
_MERGE = "_merge_whose_"
_CHANGE = "_change_of_a_table_whose_"
SLOW_DEATHS_OF = {
    "postgresql": (*_REDO, _EXPIRY, _CHANGE),
    "mariadb": (*_REDO, _EXPIRY, _MERGE),
    "delta": (*_REDO, _EXPIRY),
}
"""Parts of the names of more such tests, by a part of the name of their module.

PostgreSQL and MariaDB write rows by the code of SQLite, whose writers die in a merge, a redo and an
expiry. PostgreSQL also changes a table in one transaction, as SQLite does; MariaDB has none there.
A redo and an expiry of Delta are one commit to its log, as a merge is.
"""


def is_slow(suite: type, test: str) -> bool:
    """Return whether a test of one of our stores runs in ``make test-all`` alone."""
    if not issubclass(suite, OwnExtent):
        return False
    if test == TIMED_COMMIT and "memory" not in suite.__module__:
        return True
    for store, slow in SLOW_DEATHS_OF.items():
        if store in suite.__module__ and any(each in test for each in slow):
            return True
    return test in SLOW_DEATHS or (test == REDO_OF_MERGES and issubclass(suite, DyingPutsSuite))
