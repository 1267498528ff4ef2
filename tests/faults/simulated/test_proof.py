"""The run of a hundred thousand seeds: what it consists of, what it keeps, and its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.simulated import proof
from txtopo.testing.simulation.campaign import CampaignReport


def test_each_seed_of_each_part_is_in_one_chunk() -> None:
    seeds = [
        (name, seed)
        for name, first, count in proof.chunks()
        for seed in range(first, first + count)
    ]

    assert len(seeds) == len(set(seeds)) == 100_000
    for name, part in proof.PARTS.items():
        wanted = list(range(part.first, part.first + part.seeds))
        assert [seed for which, seed in seeds if which == name] == wanted


@pytest.mark.integration
@pytest.mark.parametrize("name", list(proof.PARTS)[:1])
def test_what_is_kept_of_a_chunk_can_be_read_again(name: str, tmp_path: Path) -> None:
    found = proof.run((name, proof.PARTS[name].first + 1, 1))
    results = tmp_path / "results"
    results.write_text("".join(f"{json.dumps(each)}\n" for each in (found, found)))

    report = proof.results_of(results)[name]

    assert report.seeds == 2
    assert report.failures == {}
    assert report.txids == 2 * found["txids"] > 0
    assert report.faults == {kind: 2 * times for kind, times in found["faults"].items()}


def test_a_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, left = tmp_path / "results", list(proof.chunks())
    last = left.pop()
    results.write_text(
        "".join(f"{json.dumps({'part': name, 'first': first})}\n" for name, first, _ in left)
    )

    assert proof.rest_of(results) == [last]


def report(**counts: Any) -> CampaignReport:
    return CampaignReport(seeds=20, txids=100, processor_s=2.0, **counts)


def test_the_page_has_a_section_for_each_part_that_ran_and_keeps_the_others() -> None:
    page = "# Simulation\n\nold\n\n## Programs of streams\n\nkept\n"
    broken = report(failures={7: ["C2: lost"]})

    made = proof.with_results(page, {"plain": report(), "spouts": broken, "slots": report()})

    first, spouts, slots = made.split("\n## Several spouts\n")[0], *made.split("\n## ")[2:]
    assert "txtopo-simulate --first 0 --seeds 20\n" in first
    assert "50 txids per processor second" in first
    assert "No promise was broken." in first
    assert "old" not in first
    assert "kept" in made
    assert "Promises were broken." in spouts
    assert "shape.further_spouts=opaque,transactional" in spouts
    assert "tests.faults.slots.command --first 0 --seeds 20" in slots
    assert "100 levels" in slots
    assert "Groups" not in made
