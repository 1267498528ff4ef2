"""docker/compose.yml as Docker reads it: whole with its secrets, refused without one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.harness.composed import DOCKER, SECRETS, find_program, read_compose, services


def test_the_readme_makes_each_secret_that_is_wanted(tmp_path: Path) -> None:
    wanted = set(re.findall(r"\$\{(\w+):\?", (DOCKER / "compose.yml").read_text()))
    shell = (
        (DOCKER / "README.md").read_text().partition("```sh\n")[2].partition("docker compose")[0]
    )
    (tmp_path / "docker").mkdir()
    subprocess.run(["bash", "-c", shell], cwd=tmp_path, check=True)

    lines = (tmp_path / "docker" / "secrets.env").read_text().splitlines()
    made = dict(line.split("=") for line in lines)
    assert made.keys() == wanted == SECRETS.keys()
    assert all(len(secret) >= 16 for secret in made.values())


@pytest.mark.skipif(find_program() is None, reason="needs what .ci/compose builds, with Go")
@pytest.mark.parametrize("secret", sorted(SECRETS))
def test_without_a_secret_the_file_is_refused(secret: str) -> None:
    assert "driver-2" in services()

    done = read_compose({name: text for name, text in SECRETS.items() if name != secret})

    assert done.returncode == 1
    assert secret in done.stderr
    assert "secrets.env" in done.stderr
