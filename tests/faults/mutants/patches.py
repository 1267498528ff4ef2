"""Patches: planted bugs as unified diffs, each with the rule that it breaks.

A patch begins with two lines: ``# the rule, in one sentence`` and ``# caught-by: a fast test``.
The rest is a unified diff. Its line numbers are ignored: what a hunk replaces must be in its file
exactly once, so that it cannot be applied elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
NOT_SIMULATED = (
    "state_backends/",
    "txtopo/bolts/append.py",
    "txtopo/kafka/sink.py",
    "txtopo/database_errors.py",
    "txtopo/kafka/formats/",
    "txtopo/frames/",
    "txtopo/kafka/connection.py",
    "txtopo/outbox.py",
    "txtopo/reliable/standby.py",
    "txtopo/runtime/restart.py",
    "txtopo/sources/delta/",
    "txtopo/sources/files/",
    "txtopo/sources/json_objects.py",
    "txtopo/kafka/",
    "txtopo/sources/query/",
    "txtopo/streams/",
    "txtopo/ensemble/embedded.py",
    "txtopo/ensemble/zookeeper/",
    "txtopo/ui/",
)
"""Code that the simulator replaces or leaves out; a bug in it is for other tests."""
SLOTS = "txtopo/resident/"
"""What the simulation of resident slots runs, and the other one does not."""
CAUGHT_BY = "caught-by: "


class PatchError(Exception):
    """A patch that cannot be read or does not apply; write it again for the present tree."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """A replacement in one file.

    Attributes:
        path: The file, below the root of the tree.
        old: The lines that are there.
        new: The lines in their place.
    """

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Patch:
    """A planted bug.

    Attributes:
        name: Name of its file, without the suffix.
        rule: The rule that it breaks.
        test: What to run with pytest if the simulator does not see it.
        hunks: What it changes.
    """

    name: str
    rule: str
    test: str
    hunks: tuple[Hunk, ...]

    @property
    def simulated(self) -> bool:
        """Whether the simulator runs the changed code; true for a patch without changes."""
        return not self.hunks or not all(h.path.startswith(NOT_SIMULATED) for h in self.hunks)

    @property
    def of_slots(self) -> bool:
        """Whether the simulation of resident slots runs what it changes."""
        return bool(self.hunks) and all(hunk.path.startswith(SLOTS) for hunk in self.hunks)

    def applied(self, root: Path) -> dict[Path, str]:
        """Return the changed files with their new texts; nothing is written.

        Raises:
            PatchError: It does not apply.
        """
        texts: dict[Path, str] = {}
        for hunk in self.hunks:
            path = root / hunk.path
            text = texts.get(path) or path.read_text()
            found = text.count(hunk.old)
            if found != 1:
                raise PatchError(
                    f"{self.name}: a hunk fits {hunk.path} {found} times, not once:\n{hunk.old}"
                )
            texts[path] = text.replace(hunk.old, hunk.new)
        return texts

    def apply(self, root: Path) -> None:
        """Change a tree.

        Raises:
            PatchError: It does not apply.
        """
        for path, text in self.applied(root).items():
            path.write_text(text)


def load_patches() -> list[Patch]:
    """Return all patches, by name."""
    return [read_patch(path) for path in sorted(FOLDER.glob("*.patch"))]


def read_patch(path: Path) -> Patch:
    """Read a patch.

    Raises:
        PatchError: It has another form.
    """
    rule, test, *lines = path.read_text().splitlines(keepends=True)
    if not rule.startswith("# ") or not test.startswith(f"# {CAUGHT_BY}"):
        raise PatchError(f"{path.name} must begin with '# rule' and '# {CAUGHT_BY}test'")
    hunks = tuple(_hunks(path.name, lines))
    if not hunks:
        raise PatchError(f"{path.name} changes nothing")
    return Patch(path.stem, rule[2:].strip(), test.removeprefix(f"# {CAUGHT_BY}").strip(), hunks)


def _hunks(name: str, lines: list[str]) -> list[Hunk]:
    hunks: list[Hunk] = []
    path = ""
    for line in lines:
        if line.startswith("--- "):
            continue
        if line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/").strip()
        elif line.startswith("@@"):
            hunks.append(Hunk(path, "", ""))
        elif line[0] in " -+" and hunks:
            last = hunks.pop()
            old = last.old + ("" if line[0] == "+" else line[1:])
            new = last.new + ("" if line[0] == "-" else line[1:])
            hunks.append(Hunk(path, old, new))
        else:
            raise PatchError(f"{name} has a line that is of no unified diff: {line!r}")
    return hunks
