"""``python -m tests.faults.fuzz``: mutated inputs for every reader, in a child process."""

from __future__ import annotations

import argparse
import select
import subprocess
import sys
from collections.abc import Iterable, Iterator

# Generous: an input takes milliseconds, and one that hangs takes for ever.
LIMIT_S = 120.0


def faults(seeds: Iterable[int]) -> Iterator[str]:
    """Feed seeds to a child process, and yield what went wrong; a child that died is replaced."""
    child = _child()
    try:
        for seed in seeds:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(f"{seed}\n")
            child.stdin.flush()
            ready, _, _ = select.select([child.stdout], [], [], LIMIT_S)
            said = child.stdout.readline().strip() if ready else "it hangs"
            if said == "ok":
                continue
            if not ready or not said:
                child.kill()
                said = said or f"the process died of {child.wait()}"
                child = _child()
            yield f"seed {seed}: {said}"
    finally:
        child.kill()
        child.wait()


def _child() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.faults.fuzz.readers"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


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
