"""``python -m txtopo``: the command line, as ``txtopo``."""

from __future__ import annotations

from txtopo.command.program import main

if __name__ == "__main__":
    main()
