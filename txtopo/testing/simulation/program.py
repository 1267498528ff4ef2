"""``txtopo-simulate``: starts the command line, or says what to install for it."""

from __future__ import annotations

from txtopo.errors import ConfigError
from txtopo.extras import require


def main() -> None:
    """Run :mod:`txtopo.testing.simulation.command`, which needs click."""
    try:
        require("click", "txtopo-simulate")
    except ConfigError as error:
        raise SystemExit(str(error)) from None
    from txtopo.testing.simulation import command

    command.main()
