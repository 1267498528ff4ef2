"""The files in docker/: versions and ports stand once, and each file is what its reader expects."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import txtopo
from tests.harness.compose import DOCKER, SECRETS, read_compose, services, variables

ROOT = Path(__file__).parents[3]
COMPOSE = (DOCKER / "compose.yml").read_text()


def test_each_variable_is_used_and_versions_stand_nowhere_else() -> None:
    for name in variables():
        assert f"${{{name}}}" in COMPOSE, name
    images = re.findall(r"image: (\S+)", COMPOSE)
    assert images
    assert all(re.search(r":\$\{\w+_VERSION\}$", image) for image in images), images


def test_versions_are_those_of_the_project() -> None:
    found = variables()
    assert found["TXTOPO_VERSION"] == txtopo.__version__
    assert (
        f"<version>{found['KAFKA_VERSION']}</version>" in (DOCKER / "kafka" / "pom.xml").read_text()
    )
    assert f"ARG PYTHON_VERSION={found['PYTHON_VERSION']}" in (DOCKER / "Dockerfile").read_text()
    image = f"image: txtopo:{found['TXTOPO_VERSION']}"
    assert image in (DOCKER / "kubernetes" / "txtopo.yaml").read_text()


def test_prometheus_reads_the_pages_of_both_drivers() -> None:
    read = yaml.safe_load((DOCKER / "prometheus" / "compose.yml").read_text())
    port = variables()["UI_PORT"]
    targets = read["scrape_configs"][0]["static_configs"][0]["targets"]
    assert targets == [f"driver-1:{port}", f"driver-2:{port}"]


@pytest.mark.service("compose")
def test_the_compose_file_is_read_and_each_service_can_be_watched() -> None:
    found = services()
    mounted = {
        each["source"]
        for service in found.values()
        for each in service.get("volumes", ())
        if each["type"] == "bind"
    }
    assert mounted
    assert all(Path(source).exists() for source in mounted)
    for name, service in found.items():
        for port in service.get("ports", ()):
            assert port["host_ip"] == "127.0.0.1", name
        if "worker" not in name and name not in ("bucket", "topic", "words"):
            assert "healthcheck" in service, name
    assert found["driver-1"]["environment"]["TXTOPO_PAGE_TOKEN"] == SECRETS["UI_TOKEN"]
    assert found["driver-1"]["command"] == found["driver-2"]["command"]


@pytest.mark.service("compose")
@pytest.mark.parametrize("missing", sorted(SECRETS))
def test_without_a_secret_nothing_starts(missing: str) -> None:
    given = {name: value for name, value in SECRETS.items() if name != missing}
    done = read_compose(**given)

    assert done.returncode == 1
    assert f"required variable {missing} is missing a value: make docker/secrets.env" in done.stderr


@pytest.mark.integration
def test_the_image_has_no_slips_that_hadolint_knows() -> None:
    program = Path(sys.executable).parent / "hadolint"
    done = subprocess.run(
        [program, DOCKER / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert done.stdout == "", done.stdout


def test_the_manifest_fits_the_schemas_of_kubernetes() -> None:
    from kubernetes_validate import validate  # type: ignore[import-untyped]

    for resource in yaml.safe_load_all((DOCKER / "kubernetes" / "txtopo.yaml").read_text()):
        validate(resource, "1.33", strict=True)


def test_the_programs_of_the_image_are_there() -> None:
    """What the services call in the image that has this environment's packages."""
    programs = Path(sys.executable).parent
    for program in ("txtopo", "spark-class"):
        assert shutil.which(program, path=str(programs)), program


@pytest.mark.integration
def test_the_secrets_are_made_once(tmp_path: Path) -> None:
    file = tmp_path / "secrets.env"
    made = [ROOT / ".ci" / "secrets", file]
    subprocess.run(made, check=True, capture_output=True)
    first = file.read_text()
    subprocess.run(made, check=True, capture_output=True)

    assert file.read_text() == first
    assert file.stat().st_mode & 0o777 == 0o600
    pairs = dict(line.split("=") for line in first.splitlines())
    assert set(pairs) == set(SECRETS)
    assert all(len(value) >= 32 for value in pairs.values())
    assert len(set(pairs.values())) == len(pairs)
