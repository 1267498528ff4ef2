"""Kill drivers at random moments while an outside reader looks: ``make faults KILLS=1000``.

One kill in twenty is on Spark, the others are on the carrier ``local``, with real servers. Finished
rounds are kept in a file beside the sources. So a campaign that was stopped continues, and a round
that broke a promise runs again by its number. The exit status is 1 if a round broke one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from examples.flights import cut, flights_csv
from tests.faults.processes.rounds import (
    LOCAL,
    SPARK,
    Record,
    Round,
    Services,
    numbers,
    run_round,
    stores_here,
)
from tests.faults.processes.stores import STORES
from tests.faults.simulated.faults_page import HEAD, PAGE
from tests.faults.simulated.faults_page import STORES as STORE_NAMES
from tests.harness.processes import ROOT
from tests.harness.report_page import table, write_section

RECORD = ROOT / ".kills.jsonl"
ON_SPARK = 20
"""Of this many kills, one is on Spark."""
TITLE = "Kills at random moments"
INTRODUCTION = """\
The driver that counts the flights is killed with SIGKILL at random moments, restarted each time,
and must end with the right result; on the carrier `local` with ZooKeeper and the store as separate
processes, and on Spark. Meanwhile another process reads the states repeatedly: each sample must be
the fold of txids 1 to k for the k in its ledger, k must never go back, no txid may change, and the
two states may differ by at most one txid (checkers C1, C2, C3, C6). This is the last part of `make
faults KILLS=1000`; an interrupted campaign resumes."""


def main() -> None:
    """Run the missing rounds, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--record", type=Path, default=RECORD, help="what ran, a line a round")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    parser.add_argument("--from-the-start", action="store_true", help="forget what ran")
    parser.add_argument("--carrier", choices=(LOCAL, SPARK), default=LOCAL, help="of --round")
    parser.add_argument("--round", type=int, help="run one round again, and write nothing")
    arguments = parser.parse_args()
    if arguments.round is not None:
        wanted = [(arguments.carrier, arguments.round, kills_of(arguments.carrier))]
        (one,) = run(wanted)
        raise SystemExit(f"{one.command}: {one.wrong}" if one.wrong else 0)
    if arguments.from_the_start:
        arguments.record.unlink(missing_ok=True)
    record = Record(arguments.record)
    for done in run(missing_rounds(arguments.kills, record.rounds())):
        record.add(done)
    rounds = record.rounds()
    write_section(arguments.page, TITLE, lines(rounds), HEAD)
    if any(each.wrong for each in rounds):
        raise SystemExit(1)


def kills_of(carrier: str) -> int:
    """Return the kills of a whole round."""
    return next(numbers(carrier, sys.maxsize))[1]


def missing_rounds(kills: int, ran: Sequence[Round]) -> list[tuple[str, int, int]]:
    """Return (carrier, number, kills) of the rounds that did not run yet or broke a promise."""
    right = {(each.carrier, each.number): each.kills for each in ran if not each.wrong}
    return [
        (carrier, number, count)
        for carrier, share in ((LOCAL, kills - kills // ON_SPARK), (SPARK, kills // ON_SPARK))
        for number, count in numbers(carrier, share)
        if right.get((carrier, number), 0) < count
    ]


def run(wanted: Sequence[tuple[str, int, int]]) -> Iterator[Round]:
    """Run rounds one after the other, and print the result of each."""
    stores = stores_here()
    with tempfile.TemporaryDirectory(prefix="txtopo-kills-") as place:
        folder = Path(place) / "input"
        cut(folder, flights_csv())
        with Services(Path(place)) as services:
            for carrier, number, kills in wanted:
                done = run_round(carrier, number, kills, folder, services, stores)
                print(
                    f"{carrier} {number} on {done.store}, {done.kind}: {done.kills} kills, "
                    f"{done.samples} samples; {done.wrong or 'right'}",
                    file=sys.stderr,
                    flush=True,
                )
                if done.wrong:
                    print(f"again: {done.command}", file=sys.stderr)
                yield done


def lines(rounds: Sequence[Round]) -> Iterator[str]:
    """Yield the section."""
    names = STORE_NAMES | {"delta": "Delta", "mariadb": "MariaDB", "redis": "Redis"}
    kills, samples = sum(r.kills for r in rounds), sum(r.samples for r in rounds)
    wrong = [each for each in rounds if each.wrong]
    yield INTRODUCTION
    yield ""
    yield (
        f"{kills:,} kills in {len(rounds)} rounds, {samples:,} samples, "
        f"{len(wrong)} rounds not right."
    )
    yield ""
    columns = ("carrier", "store", "kind", "rounds", "kills", "samples", "not right")
    ordered = sorted(rounds, key=rank_of)
    groups = groupby(ordered, key=lambda each: (each.carrier, names[each.store], each.kind))
    yield from table(columns, (row_of(key, list(group)) for key, group in groups))
    yield from (f"\n* `{each.command}`: {each.wrong.splitlines()[0]}" for each in wrong)


def row_of(key: tuple[str, str, str], rounds: Sequence[Round]) -> tuple[str, ...]:
    """Return the row of the rounds of one carrier, store and kind."""
    counts = (
        len(rounds),
        sum(each.kills for each in rounds),
        sum(each.samples for each in rounds),
    )
    wrong = sum(bool(each.wrong) for each in rounds)
    return (*key, *(f"{count:,}" for count in counts), str(wrong))


def rank_of(each: Round) -> tuple[str, int, str]:
    """Return the key by which the table is sorted."""
    return each.carrier, STORES.index(each.store), each.kind


if __name__ == "__main__":
    main()
