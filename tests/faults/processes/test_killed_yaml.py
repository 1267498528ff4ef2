"""``txtopo run`` of a YAML topology is killed at random moments: each line counts exactly once."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from tests.harness.polling import wait_until
from tests.harness.processes import Child
from tests.harness.servers.zookeeper import ZooKeeperProcess
from txtopo import open_state
from txtopo.errors import StateUsageError

pytestmark = [
    pytest.mark.kills,
    pytest.mark.slow,
    pytest.mark.service("zookeeper"),
    pytest.mark.timeout(900),
]

KILLS = 8
COMMITS_MAX = 8
"""The most commits between two kills."""
LINES = 60
"""The lines that come before each run: more than its commits take."""
WORDS = ("the", "cat", "and", "dog", "bird", "a", "tree", "in", "house", "of")

BOLTS = """
from txtopo import BasicBolt, Fields


class Split(BasicBolt):
    output_fields = Fields("word string, letters long")

    def execute(self, tuple, collector):
        for word in tuple["line"].split():
            collector.emit([word, len(word)])
"""

TOPOLOGY = """
topology: killed
spouts:
  - id: lines
    class: txtopo.spouts.FilesTransactionalSpout
    arguments:
      paths: ${LINES}
      fields: {fields: line string}
      format: text
      batch_rows_max: ${BATCH_LINES:-4}
bolts:
  - {id: split, class: bolts_of_lines.Split, parallelism: 2}
  - id: counts
    class: txtopo.PersistentAggregate
    arguments: [{state: "${STORE}", table: counts}, word, {class: txtopo.Count}]
    parallelism: 2
  - id: letters
    class: txtopo.PersistentAggregate
    arguments:
      - {state: "${STORE}", table: letters, kind: transactional}
      - word
      - {class: txtopo.Sum, arguments: [letters]}
streams:
  - {from: lines, to: split, grouping: shuffle}
  - {from: split, to: counts, grouping: fields, fields: [word]}
  - {from: split, to: letters, grouping: fields, fields: [word]}
"""


class YamlTopology:
    """A topology in a YAML file, which ``txtopo run`` runs in processes of its own."""

    def __init__(self, folder: Path, hosts: str, chance: Random) -> None:
        self.url, self.lines = f"sqlite:///{folder / 'killed.db'}", folder / "lines"
        self.lines.mkdir()
        self.words: Counter[str] = Counter()
        self._chance, self._files = chance, 0
        (folder / "bolts_of_lines.py").write_text(BOLTS)
        self._file = folder / "killed.yaml"
        self._file.write_text(TOPOLOGY)
        self._zookeeper = f"{hosts}/{uuid4().hex}"

    def add_lines(self) -> None:
        """Add one file: each run has something left to do, however late the kill before came."""
        choose = self._chance
        texts = [" ".join(choose.choices(WORDS, k=choose.randint(1, 12))) for _ in range(LINES)]
        (self.lines / f"{self._files:03}.txt").write_text("\n".join(texts) + "\n")
        self._files += 1
        self.words.update(word for text in texts for word in text.split())

    def start(self, *options: str) -> Child:
        """Start ``txtopo run``. A rate lets kills come between its commits."""
        settings = ("carrier=local", "pace.max_rows_per_second=100")
        return Child(
            *("txtopo", "--zookeeper", self._zookeeper, "run", str(self._file)),
            *("--module", "bolts_of_lines", *options),
            *(part for setting in settings for part in ("--set", setting)),
        )

    def written(self, table: str) -> int:
        """Return the txid in the ledger of a state; 0 before the first."""
        with suppress(StateUsageError), open_state(self.url, table=table).reader() as reader:
            return 0 if reader.ledger is None else reader.ledger.txid
        return 0

    def contents(self, table: str) -> dict[object, object]:
        """Return what a state holds."""
        with open_state(self.url, table=table).reader() as reader:
            return dict(reader.items())


def test_a_yaml_topology_that_is_killed_again_and_again_counts_each_line_once(
    zookeeper: ZooKeeperProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = Random(20)
    topology = YamlTopology(tmp_path, zookeeper.hosts, chance)
    monkeypatch.setenv("STORE", topology.url)
    monkeypatch.setenv("LINES", str(topology.lines))

    for kill in range(KILLS):
        topology.add_lines()
        wanted = topology.written("counts") + chance.randrange(1, COMMITS_MAX)
        # Every other time at once: then ZooKeeper may not know yet that the txid is committed.
        pause_s = chance.uniform(0.0, 0.08) * (kill % 2)
        with topology.start() as child:

            def has_gone_on(child: Child = child, wanted: int = wanted) -> bool:
                assert child.runs, child.story()
                return topology.written("counts") >= wanted

            wait_until(has_gone_on, f"txid {wanted}", pause_s=0.001)
            time.sleep(pause_s)
            assert child.runs, child.story()
            child.kill()
    topology.add_lines()
    with topology.start("--available-now") as child:
        child.end_with(0)

    assert topology.contents("counts") == dict(topology.words)
    letters = {word: len(word) * count for word, count in topology.words.items()}
    assert topology.contents("letters") == letters
