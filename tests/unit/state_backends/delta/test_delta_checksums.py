"""A bit of Delta's log that changes by itself: found, or without effect; never other rows.

Without the notes of ``state_backends/delta/durability.py`` one flip in forty is believed: rows that
were replaced are there twice, or the ledger is another one.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from state_backends.delta import durability
from state_backends.delta.layout import CHECKSUMS as FILE
from txtopo.errors import StoreDamagedError
from txtopo.state import Ledger, State, StateKind, open_state
from txtopo.testing.conformance.driver import StateDriver, whole_ledger

FLIPS = 250
Seen = tuple[Ledger | None, list[tuple[object, object]]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the table of the state is."""
    return tmp_path / "states" / "counts"


@pytest.fixture
def url(folder: Path) -> str:
    return f"delta://{folder.parent}"


def state_at(url: str, kind: StateKind = "opaque") -> State:
    return open_state(url, kind, table="counts")


def fill(url: str, kind: StateKind = "opaque") -> None:
    """Write txids with replaced, deleted and redone rows, in two epochs."""
    first = StateDriver(state_at(url, kind))
    for txid in range(1, 4):
        first.puts(txid, {f"key {at}": 10 * txid + at for at in range(4) if at != txid})
    first.close()
    second = StateDriver(state_at(url, kind), epoch=2)
    second.puts(4, {"key 1": None, "key 9": 7})
    second.puts(4, {"key 9": 8}, attempt=1)
    second.close()


def read(url: str) -> Seen:
    with state_at(url).reader() as reader:
        return reader.ledger, sorted(reader.items())


def flips(path: Path, count: int, chance: Random) -> Iterator[int]:
    """Flip a bit at this many places of a file, one after the other; yield where."""
    written, written_ns = path.read_bytes(), path.stat().st_mtime_ns
    try:
        for at in sorted(chance.sample(range(len(written)), min(count, len(written)))):
            changed = bytearray(written)
            changed[at] ^= 1 << chance.randrange(8)
            rot(path, bytes(changed), written_ns)
            yield at
    finally:
        rot(path, written, written_ns)


def rot(path: Path, changed: bytes, written_ns: int | None = None) -> None:
    """Change a file as a disk does that fails: not its time."""
    written_ns = written_ns or path.stat().st_mtime_ns
    path.write_bytes(changed)
    os.utime(path, ns=(written_ns, written_ns))


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_no_bit_of_an_entry_of_the_log_changes_what_is_read(
    kind: StateKind, url: str, folder: Path
) -> None:
    fill(url, kind)
    log = sorted(folder.glob("_delta_log/*.json"))
    assert len(log) > 7

    for path in log:
        for at in flips(path, FLIPS // len(log), Random(path.name)):
            with pytest.raises(StoreDamagedError, match="damaged"):
                pytest.fail(f"bit at {at} of {path.name} was believed: {read(url)}")


def test_no_bit_of_a_checkpoint_changes_what_is_read(url: str, folder: Path) -> None:
    fill(url)
    DeltaTable(str(folder)).create_checkpoint()
    StateDriver(state_at(url), epoch=3).close()
    seen, (checkpoint,) = read(url), folder.glob("_delta_log/*.checkpoint.parquet")

    for at in flips(checkpoint, FLIPS // 2, Random(1)):
        with pytest.raises(StoreDamagedError, match="damaged"):
            pytest.fail(f"bit at {at} was believed: {read(url)}")
    assert read(url) == seen


def test_a_coordinator_does_not_go_on_from_a_damaged_log(url: str, folder: Path) -> None:
    """It would read the ledger from it, and merge into what it names."""
    fill(url)
    replaced = max(
        path for path in folder.glob("_delta_log/*.json") if b'"remove"' in path.read_bytes()
    )
    rot(
        replaced,
        replaced.read_bytes().replace(b'"remove":{"path":"part', b'"remove":{"path":"qart'),
    )

    with pytest.raises(StoreDamagedError, match=f"to trust the file anyway, remove .*{FILE}"):
        StateDriver(state_at(url), epoch=3)


def test_who_has_the_table_open_compares_what_came_since(url: str, folder: Path) -> None:
    """Another epoch comes in between, so both look into the log again."""
    fill(url)
    store = StateDriver(state_at(url), epoch=3)
    StateDriver(state_at(url), epoch=4).close()
    newest = max(folder.glob("_delta_log/*.json"))
    rot(newest, newest.read_bytes().replace(b'"txtopo.epoch":"4"', b'"txtopo.epoch":"5"'))

    with pytest.raises(StoreDamagedError, match=newest.name):
        store.contents()
    with pytest.raises(StoreDamagedError, match=newest.name):
        store.puts(5, {"key 1": 1})


def test_a_flipped_note_is_no_note(url: str, folder: Path) -> None:
    """What is damaged is the file of the notes, and the log is whole."""
    fill(url)
    seen = read(url)

    for _ in flips(folder / "_delta_log" / FILE, FLIPS // 5, Random(2)):
        assert read(url) == seen


def test_a_log_without_notes_is_read_and_noted_from_then_on(url: str, folder: Path) -> None:
    """As a copy by hand leaves it; other programs' entries too."""
    fill(url)
    seen = read(url)
    (folder / "_delta_log" / FILE).unlink()
    DeltaTable(str(folder)).optimize.compact()

    assert read(url) == seen
    StateDriver(state_at(url), epoch=3).close()
    assert noted(folder) == sorted(path.name for path in folder.glob("_delta_log/*.json"))


def test_a_checkpoint_that_was_written_again_is_no_damage(url: str, folder: Path) -> None:
    fill(url)
    DeltaTable(str(folder)).create_checkpoint()
    StateDriver(state_at(url), epoch=3).close()
    (checkpoint,) = folder.glob("_delta_log/*.checkpoint.parquet")
    seen, before = read(url), checkpoint.read_bytes()

    pq.write_table(pq.read_table(checkpoint), checkpoint, compression="gzip")

    assert checkpoint.read_bytes() != before
    assert read(url) == seen


def test_notes_of_entries_that_are_gone_do_not_speak_of_new_ones(url: str, folder: Path) -> None:
    """As in a copy that was made while somebody wrote: the notes are ahead of the log."""
    fill(url)
    max(folder.glob("_delta_log/*.json")).unlink()

    store = StateDriver(state_at(url), epoch=3)
    store.puts(4, {"key 9": 9})

    assert dict(read(url)[1])["key 9"] == 9


def test_the_notes_stay_few(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durability, "KEPT", 3)
    fill(url)
    assert len((folder / "_delta_log" / FILE).read_text().splitlines()) > 4

    StateDriver(state_at(url), epoch=3).close()

    names = [path.name for path in sorted(folder.glob("_delta_log/*.json"))[-5:]]
    assert noted(folder) == names


def test_a_table_recreated_where_old_notes_lie_is_no_damage(url: str, folder: Path) -> None:
    fill(url)
    for path in [*folder.glob("*.parquet"), *folder.glob("_delta_log/*.json")]:
        path.unlink()

    fill(url)

    assert read(url)[0] == whole_ledger("topology", 2, 4, 2, 1)


def test_a_copy_whose_notes_are_ahead_may_be_written_by_others(url: str, folder: Path) -> None:
    """A live copy took the notes last; then another program makes the version that they know."""
    fill(url)
    max(folder.glob("_delta_log/*.json")).unlink()

    DeltaTable(str(folder)).alter.set_table_properties({"owner": "somebody"}, False)

    read(url)
    StateDriver(state_at(url), epoch=3).puts(4, {"key 9": 9})
    assert dict(read(url)[1])["key 9"] == 9


def test_notes_of_a_later_version_of_this_program_are_passed_over(url: str, folder: Path) -> None:
    fill(url)
    seen, said = read(url), b"one more word 1234abcd"
    with (folder / "_delta_log" / FILE).open("ab") as file:
        file.write(b"%s %08x\n" % (said, zlib.crc32(said)))

    assert read(url) == seen


def noted(folder: Path) -> list[str]:
    """Return the files that have a note."""
    lines = (folder / "_delta_log" / FILE).read_text().splitlines()
    return [line.partition("@")[0] for line in lines]
