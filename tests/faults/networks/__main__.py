"""Break the network of a run, link by link: ``make networks ARGS="--rounds 200"``.

Finished rounds are kept in a file beside the sources. So a campaign that was stopped continues, and
a round that broke a promise runs again by its number. The exit status is 1 if a round broke one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.faults.networks.links import FAULTS
from tests.faults.networks.rounds import LINKS, Round, Services, drawn, run_round
from tests.harness.processes import ROOT
from tests.harness.report_page import DOCS, table, write_page

RECORD = ROOT / ".networks.jsonl"
PAGE = DOCS / "proof" / "networks.md"


def main() -> None:
    """Run the missing rounds, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="of each link")
    parser.add_argument("--links", nargs="+", choices=LINKS, default=LINKS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=Path, default=RECORD, help="what ran, a line a round")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    parser.add_argument("--from-the-start", action="store_true", help="forget what ran")
    parser.add_argument("--round", type=int, help="run one round again, and write nothing")
    parser.add_argument("--fault", choices=FAULTS, help="of --round; by default what is drawn")
    arguments = parser.parse_args()
    if arguments.round is not None:
        wanted = [(link, arguments.round) for link in arguments.links]
        again = run(wanted, arguments.seed, arguments.fault)
        wrong = [each.wrong for each in again if each.wrong]
        raise SystemExit("\n".join(wrong) or 0)
    if arguments.from_the_start:
        arguments.record.unlink(missing_ok=True)
    ran = rounds_of(arguments.record)
    right = {(each.link, each.number) for each in ran if each.seed == arguments.seed}
    right -= {(each.link, each.number) for each in ran if each.wrong}
    every = [(link, number) for link in arguments.links for number in range(arguments.rounds)]
    with arguments.record.open("a") as file:
        for done in run([each for each in every if each not in right], arguments.seed):
            file.write(f"{json.dumps(asdict(done))}\n")
            file.flush()
    rounds = rounds_of(arguments.record)
    write_page(arguments.page, page(rounds))
    if any(each.wrong for each in rounds):
        raise SystemExit(1)


def rounds_of(record: Path) -> list[Round]:
    """Return the rounds of a record; of one that ran twice, the last result."""
    lines = record.read_text().splitlines() if record.exists() else []
    found = [Round(**json.loads(line)) for line in lines]
    return list({(each.link, each.number, each.seed): each for each in found}.values())


def run(wanted: Sequence[tuple[str, int]], seed: int, fault: str | None = None) -> Iterator[Round]:
    """Run rounds one after the other, and print the result of each."""
    with Services() as services:
        for link, number in wanted:
            done = run_round(drawn(link, number, seed, fault), seed, services)
            print(
                f"{link} {number}: {done.fault}, {done.store}, {done.carrier}, drivers: "
                f"{done.drivers}, txids: {done.txids}, takeovers: {done.takeovers}, deposed: "
                f"{done.deposed}, stall: {done.stall_s} s; {done.wrong or 'right'}",
                file=sys.stderr,
                flush=True,
            )
            if done.wrong:
                print(f"again: {done.command}", file=sys.stderr)
            yield done


def page(rounds: Sequence[Round]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield from HEAD.splitlines()
    yield ""
    wrong = [each for each in rounds if each.wrong]
    seeds = ", ".join(sorted({str(each.seed) for each in rounds}))
    yield "Nothing was lost or doubled, nothing hung." if not wrong else "**Not right:**"
    yield from (f"* `{each.command}`: {each.wrong.splitlines()[0]}" for each in wrong)
    yield ""
    yield (
        f"{len(rounds)} rounds with seed {seeds}: {sum(each.txids for each in rounds):,} txids, "
        f"{sum(each.samples for each in rounds):,} readings, {len(wrong)} rounds not right."
    )
    yield ""
    columns = (
        "link",
        "rounds",
        "two drivers",
        "takeovers",
        "deposed",
        "longest stall",
        "not right",
    )
    yield from table(columns, (row(link, of(rounds, link)) for link in LINKS))
    yield ""
    yield "The longest stall of each fault, in seconds, and the number of rounds in brackets."
    yield "A stall includes the fault itself and other work of the machine:"
    yield ""
    cells = (
        (fault, *(cell(each for each in of(rounds, link) if each.fault == fault) for link in LINKS))
        for fault in FAULTS
    )
    yield from table(("fault", *LINKS), cells)


def of(rounds: Sequence[Round], link: str) -> list[Round]:
    """Return the rounds of a link."""
    return [each for each in rounds if each.link == link]


def row(link: str, rounds: Sequence[Round]) -> tuple[object, ...]:
    """Return the row of a link."""
    return (
        link,
        len(rounds),
        sum(each.drivers > 1 for each in rounds),
        sum(each.takeovers for each in rounds),
        sum(each.deposed for each in rounds),
        f"{max((each.stall_s for each in rounds), default=0.0):.1f} s",
        sum(bool(each.wrong) for each in rounds),
    )


def cell(rounds: Iterator[Round]) -> str:
    """Return the longest stall, and how many rounds there were."""
    stalls = [each.stall_s for each in rounds]
    return f"{max(stalls):.1f} ({len(stalls)})" if stalls else ""


HEAD = """\
# Networks

`make networks ARGS="--rounds 200"` breaks one link of a run in each round, for 0.1 to 3 s: between
driver and ensemble, driver and store (PostgreSQL, MariaDB), or driver and Spark's executors (the
sockets of the slots of carrier `resident`, or in about every fifth round the ports of Spark's
driver, with carrier `rdd`). All traffic of the link goes through a proxy that delays, holds,
swallows, cuts and slows it, loses packets, or leaves connections half-open: the other end is gone
without closing them. ZooKeeper, databases and Spark are real. The timeouts for a silent peer are
short here (session 1 s, batch 1.5 s, connection to a store 1.5 s, slot 2 s), so some faults are
shorter and some longer than the timeouts. States and spouts are opaque and transactional, and some
rounds have a standby beside the leader.

An outside reader, whose connection to the store bypasses the proxy, reads continuously: each read
must be the fold of the first numbers, none may go back, and after the fault all numbers must be
counted within 240 s without help. Only a hang takes that long."""


if __name__ == "__main__":
    main()
