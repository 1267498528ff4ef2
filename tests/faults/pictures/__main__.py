"""Make the pictures of docs/explanation: ``make pictures``.

With ``--record`` the demo is run again for its transcript, which takes minutes and needs Java.
"""

from __future__ import annotations

import argparse

from tests.faults.pictures.gallery import DEMO, IMAGES, PICTURES, path_of
from tests.faults.pictures.transcript import record


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="run the demo again")
    IMAGES.mkdir(parents=True, exist_ok=True)
    if parser.parse_args().record:
        record(kills=3, seed=7).write(DEMO)
    for name, drawn in PICTURES.items():
        path_of(name).write_text(drawn())
        print(f"{path_of(name).name}: {path_of(name).stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
