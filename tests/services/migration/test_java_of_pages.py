"""The Java on the pages of other systems compiles against the versions that the pages name."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.test_layout import ROOT
from tests.unit.test_pages import blocks_of

POM = Path(__file__).with_name("pom.xml")
PAGES = [page for page in (ROOT / "docs").rglob("*.md") if "```java" in page.read_text()]
VERSION = re.compile(r"<artifactId>([\w-]+)</artifactId>\s*<version>([\d.]+)</version>\s*<excl")
JARS = re.compile(r"`([\w-]+)` ([\d.]*\d)")


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Have Maven fetch the jars (40 MB, once), and return where they are."""
    for program in ("mvn", "javac"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}, which compiles the Java of the pages")
    path = tmp_path_factory.mktemp("java") / "class_path"
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
    fetched = subprocess.run(
        ["mvn", "-q", "-B", "-f", str(POM), goal, f"-Dmdep.outputFile={path}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode:
        pytest.skip("needs Maven Central, or what was fetched from it earlier")
    return path.read_text()


@pytest.mark.slow  # fetches jars, and javac takes seconds
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_java_of_a_page_compiles(page: Path, class_path: str, tmp_path: Path) -> None:
    blocks = [block for block in blocks_of(page.read_text()) if block.language == "java"]
    for number, block in enumerate(blocks):
        (tmp_path / f"Block{number}.java").write_text(block.text)

    compiled = compile_java(sorted(tmp_path.glob("*.java")), class_path, tmp_path)

    assert compiled.returncode == 0, compiled.stdout + compiled.stderr


@pytest.mark.slow
def test_a_method_that_a_class_has_not_is_noticed(class_path: str, tmp_path: Path) -> None:
    source = tmp_path / "Block0.java"
    source.write_text(
        "class A { org.apache.storm.topology.TopologyBuilder b; void a() { b.setSpuot(); } }"
    )

    compiled = compile_java([source], class_path, tmp_path)

    assert "setSpuot" in compiled.stderr
    assert compiled.returncode == 1


def test_a_page_with_java_names_the_versions_that_it_is_compiled_against() -> None:
    fetched = dict(VERSION.findall(POM.read_text()))
    for page in PAGES:
        named = dict(JARS.findall(page.read_text()))

        assert named, f"{page.name} names no jar, such as `storm-core` {fetched['storm-core']}"
        assert named.items() <= fetched.items(), page.name


def compile_java(
    sources: list[Path], class_path: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run the compiler; warnings of raw types and of Storm's deprecated builder are not errors."""
    return subprocess.run(
        ["javac", "-Xlint:none", "-proc:none", "-cp", class_path, "-d", str(folder), *sources],
        capture_output=True,
        text=True,
        check=False,
    )
