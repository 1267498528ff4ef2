"""List the licence of every dependency: ``make licences``; writes ``docs/proof/licences.md``.

A package says its licence in one of three fields of its metadata, so they are asked in turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from operator import itemgetter

from packaging.requirements import Requirement

from tests.harness.processes import ROOT
from tests.harness.report_page import DOCS, table, write_page
from tests.harness.versions import spelled

PAGE = DOCS / "proof" / "licences.md"
COLUMNS = ("package", "licence", "needed by")
HEAD = """# Licences

The licence of every package that txtopo needs, directly or indirectly, as the packages themselves
state it. txtopo is under Apache-2.0. `make licences` writes this page from the packages of
`constraints.txt`.

`core` is what `pip install txtopo` installs; the other names are extras, as in `pip install
'txtopo[kafka]'`. `tests` needs a clone. The wheel of txtopo contains none of them. PySpark includes
jars, among them those of Spark and ZooKeeper; their licences are in its folder `licenses`. The jars
of Delta and of the Kafka broker, which `make test` downloads, are under Apache-2.0.
"""


def pinned() -> list[str]:
    """Return the packages of ``constraints.txt``."""
    return re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


def licence_of(package: Distribution) -> str:
    """Return the licence of a package in a few words."""
    known = package.metadata.json
    stated = str(known.get("license_expression") or known.get("license") or "")
    kinds = [kind for kind in known.get("classifier", ()) if kind.startswith("License")]
    classified = " or ".join(kind.rpartition(" :: ")[2] for kind in kinds)
    first, _, rest = stated.strip().partition("\n")
    if first in ("", "UNKNOWN") or rest:
        return classified or first or "not stated"
    return first


def needs(name: str, extras: frozenset[str], found: set[str]) -> set[str]:
    """Add to *found* what a package needs with some of its extras, and what those need."""
    try:
        required = distribution(name).requires or []
    except PackageNotFoundError:
        return found
    for requirement in map(Requirement, required):
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
            continue
        needed, brought = spelled(requirement.name), frozenset(requirement.extras)
        if needed not in found or brought:
            found.add(needed)
            needs(needed, brought, found)
    return found


def needed_by() -> dict[str, list[str]]:
    """Return what needs each package: the core, some extras, or tests alone."""
    extras = distribution("txtopo").metadata.get_all("Provides-Extra") or []
    core = needs("txtopo", frozenset(), set())
    users = {name: ["core"] for name in core}
    for extra in sorted(set(extras) - {"all", "docs", "test"}):
        for name in needs("txtopo", frozenset({extra}), set()) - core:
            users.setdefault(name, []).append(extra)
    return users


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield a row for each package, those of the core first."""
    users = needed_by()
    found = []
    for name in pinned():
        by = users.get(spelled(name), ["tests"])
        order = (by != ["core"], by == ["tests"], name.lower())
        found.append((order, (name, licence_of(distribution(name)), ", ".join(by))))
    yield from (row for _, row in sorted(found, key=itemgetter(0)))


if __name__ == "__main__":
    write_page(PAGE, [HEAD, *table(COLUMNS, rows())])
