"""Lazy names: a package imports the module of a name when the name is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def lazy_names(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: Name of the package.
        names: The names that come from each module.
    """
    homes = {name: module for module, those in names.items() for name in those}

    def getattr_of(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    def dir_of() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return getattr_of, dir_of
