"""``python -m examples.nexmark q5``: run a query of NEXMark and print some of what it finds."""

from __future__ import annotations

import argparse
from itertools import islice

from examples.nexmark.generator import Generator
from examples.nexmark.queries import QUERIES, topology
from txtopo import Config, open_state


def main() -> None:
    """Run a query."""
    parser = argparse.ArgumentParser(prog="python -m examples.nexmark", description=__doc__)
    parser.add_argument("query", choices=list(QUERIES))
    parser.add_argument("--events", type=int, default=100_000, help="100,000 by default")
    parser.add_argument(
        "--rate", type=float, default=1_000, help="events a second; 1,000 by default"
    )
    parser.add_argument("--local", action="store_true", help="without Spark")
    arguments = parser.parse_args()
    generator = Generator(arguments.events, arguments.rate, arguments.seed)
    program = topology(arguments.query, generator, arguments.store)
    config = Config(carrier="local" if arguments.local else "auto")
    with program.start(config=config) as run:
        run.process_all_available()
    with open_state(arguments.store, table=arguments.query).reader() as reader:
        rows = reader.items()
        for key, value in islice(rows, 10):
            print(key, value)
        print(f"… and {sum(1 for _ in rows)} more")


if __name__ == "__main__":
    main()
