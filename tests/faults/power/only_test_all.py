"""The planted bugs that ``make test`` does not catch and ``make test-all`` does, each with why."""

_UPGRADE = "It is in the upgrade of a table between formats that were never released."

ONLY_TEST_ALL: dict[str, str] = {
    "sqlite-brings-up-no-previous-values": _UPGRADE,
    "sqlite-brings-up-unmarked": _UPGRADE,
}
"""The name of a bug, and why what catches it is too dear for each commit."""
