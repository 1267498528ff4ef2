"""Which part of a log is folded: a row is rewritten once a tier."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from txtopo.state.log_mode import SEGMENTS_OF_A_TIER, span_to_fold


@dataclass(frozen=True)
class Piece:
    """A segment, with the keys in it."""

    first_txid: int
    last_txid: int
    keys: frozenset[int]

    @property
    def rows(self) -> int:
        return len(self.keys)


@pytest.mark.parametrize("keys", [20, 2_000, 200_000], ids=lambda keys: f"{keys} keys")
def test_a_row_is_rewritten_once_a_tier(keys: int) -> None:
    """Whether txids share all of their keys, some, or hardly any."""
    chance, size, txids = random.Random(7), 20, 1_100
    log: list[Piece] = []
    rewritten = 0
    for txid in range(1, txids + 1):
        log.append(Piece(txid, txid, frozenset(chance.sample(range(keys), size))))
        while txid % SEGMENTS_OF_A_TIER == 0 and (span := span_to_fold(log, txid)):
            log, rows = fold(log, *span)
            rewritten += rows
        assert len(log) <= 3 * SEGMENTS_OF_A_TIER, "there are three tiers"

    assert rewritten <= 3 * size * txids


@pytest.mark.parametrize("sizes", [(10, 50), (10, 10, 10, 50), (10, 1000)], ids=str)
def test_batches_that_are_small_and_large_in_turn_are_folded_as_well(
    sizes: tuple[int, ...],
) -> None:
    log: list[Piece] = []
    longest = 0
    for txid in range(1, 2_001):
        size = sizes[txid % len(sizes)]
        log.append(Piece(txid, txid, frozenset(range(txid * 1000, txid * 1000 + size))))
        while txid % SEGMENTS_OF_A_TIER == 0 and (span := span_to_fold(log, txid)):
            log, _ = fold(log, *span)
        longest = max(longest, len(log))

    assert longest <= 6 * SEGMENTS_OF_A_TIER


def fold(log: list[Piece], first: int, last: int) -> tuple[list[Piece], int]:
    """Return the log with a span folded, and how many rows were rewritten."""
    gone = [each for each in log if first <= each.first_txid and each.last_txid <= last]
    folded = Piece(first, last, frozenset().union(*(each.keys for each in gone)))
    left = sorted([*(each for each in log if each not in gone), folded], key=_last)
    return left, sum(each.rows for each in gone)


def _last(piece: Piece) -> int:
    return piece.last_txid


@pytest.mark.rule("state_backends.sql.log", "Folds", 1)
def test_the_newest_txid_and_few_segments_are_left_alone() -> None:
    log = [Piece(at, at, frozenset([at])) for at in range(1, SEGMENTS_OF_A_TIER + 1)]

    assert span_to_fold(log, SEGMENTS_OF_A_TIER) is None
    assert span_to_fold(log, SEGMENTS_OF_A_TIER + 1) == (1, SEGMENTS_OF_A_TIER)
