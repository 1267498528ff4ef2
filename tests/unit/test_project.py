"""The files around the code: one version, licences of all packages, and commands that exist."""

from __future__ import annotations

import re
from configparser import ConfigParser
from typing import Any

import yaml

from tests.harness import licences, versions
from tests.unit.test_layout import ROOT
from txtopo import __version__

RELEASE = re.compile(r"^## \[([\d.]+)\] - (\d{4}-\d\d-\d\d)$", re.MULTILINE)


def read_yaml(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def test_the_version_stands_in_one_place_and_the_others_repeat_it() -> None:
    """Those of docker/ are compared in tests/unit/docker/test_files.py."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    newest = RELEASE.search((ROOT / "CHANGELOG.md").read_text())
    citation = read_yaml("CITATION.cff")

    assert setup["metadata"]["version"] == "attr: txtopo.__version__"
    assert newest is not None
    assert newest[1] == str(citation["version"]) == __version__
    assert newest[2] == str(citation["date-released"])


def test_the_files_of_a_release_are_those_of_this_version() -> None:
    page = (ROOT / "docs" / "how-to" / "installation.md").read_text()

    assert set(re.findall(r"txtopo-(\d[\d.]*\d)[-./]", page)) == {__version__}


def test_the_citation_has_what_its_format_requires() -> None:
    citation = read_yaml("CITATION.cff")

    assert citation["cff-version"] == "1.2.0"
    assert citation["message"]
    assert citation["title"]
    assert all("name" in author for author in citation["authors"])
    assert citation["license"] == "Apache-2.0"


def test_the_workflows_run_every_test_and_may_write_nothing() -> None:
    """A shard that is not run would be missed by nobody."""
    runs = {}
    for name in ("ci", "nightly"):
        workflow = read_yaml(f".github/workflows/{name}.yml")
        (runs[name],) = workflow["jobs"].values()
        assert workflow["permissions"] == {"contents": "read"}
    shards = runs["nightly"]["strategy"]["matrix"]["shard"]

    assert ".ci/run" in [step.get("run") for step in runs["ci"]["steps"]]
    assert "make test-all" in runs["nightly"]["steps"][-1]["run"]
    assert shards == [f"{each}/{len(shards)}" for each in range(1, len(shards) + 1)]


def test_pre_commit_runs_programs_that_make_check_runs() -> None:
    makefile = (ROOT / "Makefile").read_text()
    ((repository),) = read_yaml(".pre-commit-config.yaml")["repos"]

    assert repository["repo"] == "local", "nothing is fetched"
    for hook in repository["hooks"]:
        command = hook["entry"].removesuffix(" --fix")
        assert command in makefile or f"\n{command.removeprefix('make ')}:" in makefile, command


def test_each_package_is_listed_with_its_licence() -> None:
    """Of what an installation brings, none is under a licence that would bind programs as well."""
    page = licences.PAGE.read_text()
    listed = {row[0]: row[1:] for row in re.findall(r"^\| (\S+) \| (.+) \| (.+) \|$", page, re.M)}

    assert set(licences.pinned()) <= set(listed)
    for package, (licence, users) in listed.items():
        assert licence != "not stated", package
        bound = re.search(r"(?<!L)GPL", licence) and users != "tests"
        assert not bound, f"{package} of {users} is under {licence}"


def test_the_page_of_versions_has_the_bounds_and_the_suites_of_now() -> None:
    page = versions.PAGE.read_text()
    rows = versions.rows_of(page)

    for setup in versions.setups():
        if setup.name not in rows:
            continue
        if setup.java is None:
            assert rows[setup.name][1] == setup.versions(), f"{setup.name}: make versions"
        assert rows[setup.name][2] == ", ".join(setup.suites), f"{setup.name}: make versions"
    assert page == "".join(f"{line}\n" for line in versions.page_lines(rows))


def test_each_python_that_is_promised_is_tried() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    promised = re.findall(r"Python :: (3\.\d+)", setup["metadata"]["classifiers"])

    others = {f"Python {version}" for version in promised} - {f"Python {versions.PYTHON_LOWEST}"}

    assert others <= {each.name for each in versions.setups()}
    assert (
        setup["options"]["python_requires"] == f">={versions.PYTHON_LOWEST}" == f">={promised[0]}"
    )
