"""Each example runs and prints what it says; without Spark here, on Spark with the mark."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples import (
    csv_files,
    dead_letters,
    global_count,
    guarantees,
    killed_upsert,
    outbox,
    own_database,
    own_sql,
    reliable_word_count,
    top_words,
    transactional_words,
    word_count,
)
from tests.harness.servers.kafka import KafkaBroker
from tests.harness.servers.rabbitmq import RabbitServer
from tests.harness.spark_session import SHORT_LIVED
from tests.unit.kafka.logs import Log
from tests.unit.sources.queues import TestQueue
from txtopo import AtLeastOnceConfig, Config, TransactionAttempt, ZooKeeper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
LOCAL = Config(carrier="local", zookeeper="memory", slots=2)
# So few are done before they time out, however slow the machine is; else all come again for ever.
PENDING = 100
Main = Callable[["SparkSession | None", Config, str], None]

TOTALS = "txid 1: 9 words so far\ntxid 2: 16 words so far\ntxid 3: 19 words so far\n"
TOTALS += "in the store: 19 words\n"
COUNTS = "apple: 2\nbanana: 1\ncat: 8\nchicken: 1\ndog: 7\n"
LETTERS = "totals: {'ann': 42, 'eve': 7}\ntoo-large: {'dan': 1}\n"
LETTERS += '{"text": "bob many"}: invalid literal for int() with base 10: \'many\'\n'
LETTERS += '{"text": "cid -3"}: cid paid -3, which is negative\n'
LETTERS += '{"text": "nobody"}: not enough values to unpack (expected 2, got 1)\n'
EXAMPLES: list[tuple[str, Main, str]] = [
    ("global_count", global_count.main, TOTALS),
    ("own_database", own_database.main, TOTALS.replace("in the store", "in the database")),
    ("own_sql", own_sql.main, TOTALS.replace("in the store", "in the database")),
    ("word_count", word_count.main, COUNTS),
    ("top_words", top_words.main, "cat: 8\ndog: 7\napple: 2\nbanana: 1\nchicken: 1\n"),
    ("dead_letters", dead_letters.main, LETTERS),
    ("transactional_words", transactional_words.main, COUNTS + "0 to 9 times: 5 words\n"),
]
each_example = pytest.mark.parametrize(
    ("main", "printed"), [pytest.param(*rest, id=name) for name, *rest in EXAMPLES]
)
# Those that ``make test`` runs on Spark, too.
ON_SPARK = ("transactional_words",)


@each_example
def test_an_example_prints_what_it_says(
    main: Main, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(LOCAL, zookeeper=f"file:{tmp_path}/progress.db")
    main(None, config, f"sqlite:///{tmp_path / 'example.db'}")
    first = capsys.readouterr().out

    main(None, config, f"sqlite:///{tmp_path / 'example.db'}")
    again = capsys.readouterr().out

    assert first == printed
    assert again, "what the store holds is printed by each run"
    assert printed.endswith(again), "the second run finds nothing left to do"


@pytest.mark.parametrize(
    ("main", "printed"),
    [
        pytest.param(*rest, id=name, marks=[] if name in ON_SPARK else pytest.mark.slow)
        for name, *rest in EXAMPLES
    ],
)
def test_an_example_prints_the_same_on_spark(
    spark: SparkSession,
    main: Main,
    printed: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(spark, Config(zookeeper="memory"), f"sqlite:///{tmp_path / 'example.db'}")

    assert capsys.readouterr().out == printed


def test_the_database_of_its_own_refuses_who_comes_too_late(tmp_path: Path) -> None:
    """A leader that was frozen before its write, and wakes up after another one has taken over."""
    path = str(tmp_path / "own.db")

    def finish(txid: int, epoch: int, words: int) -> int:
        bolt = own_database.UpdateGlobalCount(path)
        bolt.attempt, bolt.sum = TransactionAttempt(txid, 0, epoch), words
        bolt.finish_batch()
        with closing(own_database.opened(path)) as database:
            total: int = database.execute("SELECT words FROM total").fetchone()[0]
        return total

    assert [finish(1, 1, 9), finish(1, 2, 9), finish(2, 2, 7)] == [9, 9, 16]
    for txid, epoch in ((1, 1), (2, 1), (1, 2), (3, 1)):
        with pytest.raises(RuntimeError, match="comes too late"):
            finish(txid, epoch, 5)
    assert finish(2, 2, 7) == 16


def test_only_the_top_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    top_words.main(None, LOCAL, f"sqlite:///{tmp_path / 'example.db'}", size=2)

    assert capsys.readouterr().out == "cat: 8\ndog: 7\n"


FILES = """\
ann in FR: 2 orders, 10.00
ann in NL: 1 orders, 1.25
bob in FR: 1 orders, 4.00
cid in NL: 1 orders, 7.00
and with wednesday.csv:
ann in FR: 2 orders, 10.00
ann in NL: 2 orders, 3.75
bob in FR: 2 orders, 10.00
cid in NL: 1 orders, 7.00
"""


def test_a_file_that_is_added_while_the_example_runs_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv_files.main(None, LOCAL, f"sqlite:///{tmp_path}/totals.db", tmp_path / "orders")

    assert capsys.readouterr().out == FILES


def test_the_example_with_files_reads_each_of_them_once(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second run of the example, which finds all three files there, counts nothing again."""
    config = Config(zookeeper=ZooKeeper(dir=str(tmp_path / "zookeeper")))
    url, folder = f"sqlite:///{tmp_path}/totals.db", tmp_path / "orders"

    csv_files.main(spark, config, url, folder)
    first = capsys.readouterr().out
    csv_files.main(spark, config, url, folder)
    second = capsys.readouterr().out

    before, after = FILES.split("and with wednesday.csv:\n")
    assert first == FILES
    assert second == f"{after}and with wednesday.csv:\n{after}"
    assert before != after


def test_the_reliable_example_shows_acks_fails_replays_and_pending_trees(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reliable_word_count, "TIMES", 300)

    config = AtLeastOnceConfig(carrier="local", message_timeout_s=1, max_spout_pending=PENDING)
    reliable_word_count.main(None, config)

    judge_reliable(capsys.readouterr().out)


def test_the_reliable_example_takes_the_session_that_it_is_given(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reliable_word_count, "TIMES", 300)

    reliable_word_count.main(
        spark, AtLeastOnceConfig(message_timeout_s=2, max_spout_pending=PENDING)
    )

    judge_reliable(capsys.readouterr().out)


def judge_reliable(printed: str) -> None:
    last = [line for line in printed.splitlines() if line.startswith("acked")][-1]
    numbers = [int(word) for word in last.replace(",", "").split() if word.isdigit()]
    acked, failed, timed_out, replayed, pending = numbers
    assert (acked, pending) == (1500, 0)
    assert failed + timed_out == replayed
    assert failed > 0
    assert timed_out > 0


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.kills
@pytest.mark.timeout(900)
def test_the_three_guarantees_lose_double_and_count_right_under_the_same_kills() -> None:
    judge_guarantees(guarantees.compare(4_000))


def test_the_page_shows_what_the_three_guarantees_printed() -> None:
    page = (ROOT / "docs" / "how-to" / "at-least-once.md").read_text()
    numbers = {
        name: [int(cell.replace(",", "")) for cell in cells.split("|")]
        for name, cells in re.findall(r"^\| ((?:at|exactly) [a-z ]*) \| (\d.*) \|$", page, re.M)
    }

    judge_guarantees({name: guarantees.Outcome(*cells) for name, cells in numbers.items()})


def judge_guarantees(outcomes: dict[str, guarantees.Outcome]) -> None:
    most, least, exactly = (outcomes[name] for name in guarantees.GUARANTEES)
    assert (most.kills, least.kills, exactly.kills) == (3, 3, 3)
    assert most.lost > 0 == most.doubled
    assert least.doubled > 0 == least.lost
    assert (exactly.lost, exactly.doubled) == (0, 0)


def test_a_word_that_moves_on_leaves_its_bucket(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactional_words, "BUCKET_SIZE", 5)

    transactional_words.main(None, LOCAL, f"sqlite:///{tmp_path / 'example.db'}")

    assert capsys.readouterr().out.endswith("0 to 4 times: 3 words\n5 to 9 times: 2 words\n")


@pytest.mark.slow
@pytest.mark.spark
def test_an_example_runs_as_a_script_and_goes_on_where_it_was(tmp_path: Path) -> None:
    """Embedded ZooKeeper and SQLite in the current folder: the second run has nothing to do."""
    script = [sys.executable, str(ROOT / "examples" / "global_count.py")]

    first, second = (
        subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )

    assert first == TOTALS
    assert second == TOTALS.splitlines(keepends=True)[-1]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.service("kafka")
@pytest.mark.service("rabbitmq")
def test_the_example_of_an_outbox_publishes_its_events(
    kafka: KafkaBroker, rabbitmq: RabbitServer, tmp_path: Path
) -> None:
    topic, queue = Log(kafka, 1).name, TestQueue(rabbitmq).name
    script = [sys.executable, str(ROOT / "examples" / "outbox.py"), "--dir", str(tmp_path)]
    script += ["--kafka", kafka.servers, "--topic", topic]
    script += ["--rabbitmq", rabbitmq.url(), "--queue", queue]

    printed = subprocess.run(script, capture_output=True, text=True, check=True).stdout

    events = sum(cents >= 300 for _, _, cents in outbox.ORDERS)
    assert printed == f"{events} events to kafka\n{events} events to rabbitmq\n"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.kills
def test_upserts_by_hand_count_wrongly_where_txtopo_counts_right_under_the_same_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = (ROOT / "docs" / "how-to" / "migrate" / "from-foreach-batch.md").read_text()
    # A JVM of a few seconds is not worth compiling for.
    java = f"--driver-memory 1g --driver-java-options '{SHORT_LIVED}' pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", java)

    printed = killed_upsert.compare()

    assert printed
    assert f"```text\n{printed}```\n" in page
