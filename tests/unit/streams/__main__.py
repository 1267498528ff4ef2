"""Random programs of the stream API in virtual time: ``python -m tests.unit.streams 0 2000``."""

from __future__ import annotations

import sys
from collections import Counter

from tests.unit.streams.programs import random_program
from tests.unit.streams.timed_programs import random_timed_program, sources_of
from tests.unit.streams.worlds import GROUPS, sales, simulated, simulated_timed, timed_sales


def main(first: int, seeds: int) -> int:
    """Run seeds, every second one with groups of txids; return 1 if a promise was broken."""
    rows, broken, txids, groups = sales(20), 0, 0, Counter[str]()
    for seed in range(first, first + seeds):
        config = GROUPS if seed % 2 else None
        timed = {id: timed_sales(16, seed, id[0]) for id in sources_of(seed)}
        for judged in (
            simulated(random_program(seed), seed, rows, config),
            simulated_timed(random_timed_program(seed), seed, timed, config),
        ):
            txids += judged.txids
            groups.update(judged.groups)
            for each in judged.violations[:3]:
                print(f"seed {seed}: {each.checker}: {each.what}")
            broken += bool(judged.violations)
    print(
        f"{2 * seeds:,} programs, half of them with event time, {broken} with a violation; "
        f"{txids:,} txids; groups: {dict(groups)}"
    )
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
