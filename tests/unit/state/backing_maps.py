"""Backing maps for tests: in a dict, one that dies half-way, and one that compares."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

from txtopo.plugins.stores import BackingMap

# What was put, by URL: a store outlives the maps that were opened on it.
STORES: defaultdict[str, dict[str, str]] = defaultdict(dict)


class DictMap(BackingMap):
    """Texts in a dict."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        return [self.texts.get(key) for key in keys]

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        self.texts.update(zip(keys, values, strict=True))


class ComparingMap(DictMap):
    """The same, with the third method."""

    def compare_and_put(self, key: str, expected: str | None, value: str) -> bool:
        if self.texts.get(key) != expected:
            return False
        self.texts[key] = value
        return True


class MortalMap(DictMap):
    """Dies after this many keys, wherever that is, and puts keys in an order of its own.

    Attributes:
        keys_left: How many keys it still puts.
    """

    def __init__(self, texts: dict[str, str], keys_left: int = 10**9, seed: int = 0) -> None:
        super().__init__(texts)
        self.keys_left = keys_left
        self._chance = random.Random(seed)

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        if self.keys_left < 0:
            raise ConnectionError("it is dead")
        return super().multi_get(keys)

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        pairs = list(zip(keys, values, strict=True))
        for key, value in self._chance.sample(pairs, len(pairs)):
            self.keys_left -= 1
            if self.keys_left < 0:
                raise ConnectionError("it died")
            self.texts[key] = value


class MortalComparingMap(MortalMap, ComparingMap):
    """Compares, and dies after this many keys."""

    def compare_and_put(self, key: str, expected: str | None, value: str) -> bool:
        self.keys_left -= 1
        if self.keys_left < 0:
            raise ConnectionError("it died")
        return super().compare_and_put(key, expected, value)


def open_map(url: str) -> DictMap:
    """Open the map of a URL."""
    return DictMap(STORES[url])


def open_comparing_map(url: str) -> ComparingMap:
    """Open the map of a URL, with the fence."""
    return ComparingMap(STORES[url])
