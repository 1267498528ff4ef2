"""The page about states on the command line shows what the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.harness.report_page import DOCS
from txtopo.command.program import run

TOKEN = re.compile(r"(?<=ensemble |....term )[0-9a-f]{16}")


def blocks(page: str, kind: str) -> list[str]:
    """Return the blocks of a kind in a page."""
    text = (DOCS / "how-to" / page).read_text()
    return [found[1] for found in re.finditer(rf"```{kind}\n(.*?)```", text, re.DOTALL)]


def test_the_page_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(blocks("reading-states.md", "python")[0], {"__name__": "page"})
    capsys.readouterr()
    said: list[tuple[str, str]] = []

    for block in blocks("states-on-the-command-line.md", "text"):
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, shown = command.partition("\n")
            said.append((shown, printed(line, capsys)))

    assert len(said) >= 9
    assert [TOKEN.sub("…", now) for _, now in said] == [TOKEN.sub("…", each) for each, _ in said]


def printed(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a line of the page prints."""
    program, *arguments = shlex.split(line.removesuffix("; echo $?"))
    if program == "cat":
        return Path(arguments[0]).read_text()
    code = run(arguments)
    told = capsys.readouterr()
    return told.out + told.err + (f"{code}\n" if line.endswith("echo $?") else "")
