"""Feed mutated inputs to every reader in a child process: ``python -m tests.faults.fuzz``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator

from tests.harness.polling import LIMIT_S
from tests.harness.processes import Child

READERS = "tests.faults.fuzz.readers"


def faults(seeds: Iterable[int]) -> Iterator[str]:
    """Feed seeds to a child, and yield what went wrong; a child that has died is replaced."""
    child = Child(READERS, held=True)
    try:
        for seed in seeds:
            child.write(f"{seed}\n")
            try:
                said = child.next_event(LIMIT_S)
            except AssertionError:
                fault = "it hangs"
            else:
                if said is not None and said["event"] == "right":
                    continue
                fault = f"the process died of {child.wait()}" if said is None else said["what"]
            if not child.runs:
                child.clean_up()
                child = Child(READERS, held=True)
            yield f"seed {seed}: {fault}"
    finally:
        child.clean_up()


def main() -> int:
    """Feed as many inputs as wanted."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="the first")
    arguments = parser.parse_args()
    count = 0
    for fault in faults(range(arguments.seed, arguments.seed + arguments.inputs)):
        count += 1
        print(fault, flush=True)
    print(f"{arguments.inputs} inputs from seed {arguments.seed}, {count} faults", flush=True)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
