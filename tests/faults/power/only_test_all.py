"""The planted bugs that ``make test`` does not catch and ``make test-all`` does, each with why."""

ONLY_TEST_ALL: dict[str, str] = {}
"""The name of a bug, and why what catches it is too dear for each commit."""
