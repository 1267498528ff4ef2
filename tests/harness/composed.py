"""The services of docker/compose.yml without Docker: the same commands, on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.harness.servers.private import installed

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
SECRETS = {
    "GRAFANA_PASSWORD": "secret-of-the-tests",
    "POSTGRES_PASSWORD": "secret-of-the-tests",
    "S3_SECRET_KEY": "secret-of-the-tests",
    "UI_TOKEN": "secret-of-the-tests",
}


def find_program() -> Path | None:
    """Return what reads compose files, or None if nobody has built it."""
    modules = (DOCKER / "check" / "go.mod").read_text()
    version = modules.partition("compose-spec/compose-go/v2 v")[2].split()[0]
    program = installed(f"compose-check-{version}") / "compose-check"
    return program if program.exists() else None


def read_compose(
    environment: Mapping[str, str], file: Path = DOCKER / "compose.yml"
) -> subprocess.CompletedProcess[str]:
    """Read a compose file, as ``docker compose config`` does."""
    program = find_program()
    assert program is not None
    return subprocess.run(
        [program, file], env=dict(environment), capture_output=True, text=True, check=False
    )


def services() -> dict[str, Any]:
    """Return the services of the compose file, with all variables replaced."""
    done = read_compose(SECRETS)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


def variables() -> dict[str, str]:
    """Return what docker/.env sets."""
    lines = (DOCKER / ".env").read_text().splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def process_of(
    service: Mapping[str, Any], addresses: Mapping[str, str], folder: Path, **more: str
) -> subprocess.Popen[bytes]:
    """Start what a service runs, in a folder, with addresses of this machine.

    Args:
        service: The service.
        addresses: What stands in the place of each text of its command and its environment.
        folder: Its working directory and its log.
        more: Variables of the environment that are set as well.
    """

    def here(text: str) -> str:
        for address, other in addresses.items():
            text = text.replace(address, other)
        return text

    folder.mkdir(parents=True, exist_ok=True)
    programs = Path(sys.executable).parent
    environment = {name: here(value) for name, value in service["environment"].items()}
    path = f"{programs}:{os.environ['PATH']}"
    own = {"PATH": path, "PYTHONPATH": str(DOCKER / "topologies")}
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [here(each) for each in service["command"]],
            cwd=folder,
            env={**os.environ, **environment, **own, **more},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
