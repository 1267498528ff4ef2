"""What docker/compose.yml and docker/.env say, read as ``docker compose`` reads them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.harness.servers.private import installed

DOCKER = Path(__file__).parents[2] / "docker"
_NAMES = ("GRAFANA_PASSWORD", "POSTGRES_PASSWORD", "S3_SECRET_KEY", "UI_TOKEN")
SECRETS = dict.fromkeys(_NAMES, "secret-of-the-tests")
"""The passwords that compose.yml wants, with values for the tests."""


def find_checker() -> Path | None:
    """Return the program that reads compose files, or None if nobody has built it."""
    version = (DOCKER / "check" / "go.mod").read_text().partition("compose-go/v2 v")[2].split()[0]
    program = installed(f"compose-check-{version}") / "compose-check"
    return program if program.exists() else None


def find_s3() -> Path | None:
    """Return the S3 store that compose.yml names, or None if nobody has built it."""
    program = installed(f"versitygw-{variables()['VERSITYGW_VERSION']}") / "versitygw"
    return program if program.exists() else None


def read_compose(**environment: str) -> subprocess.CompletedProcess[str]:
    """Read the compose file as ``docker compose config`` does."""
    program = find_checker()
    if program is None:
        raise FileNotFoundError("no program that reads compose.yml found; run make compose")
    return subprocess.run(
        [program, DOCKER / "compose.yml"],
        env={"HOME": os.environ["HOME"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def services() -> dict[str, Any]:
    """Return the services of the compose file, with all variables replaced."""
    done = read_compose(**SECRETS)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


def variables() -> dict[str, str]:
    """Return what docker/.env sets."""
    lines = (DOCKER / ".env").read_text().splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}
