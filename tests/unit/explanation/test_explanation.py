"""What explain() says of a topology: its parts, its carrier, and what happens after a failure."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING

import pytest

from tests.unit.explanation import topologies
from txtopo import (
    AtLeastOnceConfig,
    Config,
    Count,
    PersistentAggregate,
    Topology,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.carriers.choice import SessionOffer, carrier_choice, with_carrier
from txtopo.carriers.spark import RddCarrier
from txtopo.errors import ConfigError, TopologyError
from txtopo.frames.carriers import FrameCarrier
from txtopo.runtime.start import open_carrier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::txtopo.TopologyWarning")


@pytest.fixture(autouse=True)
def _no_session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test of this process may have left a session active."""
    if request.node.get_closest_marker("spark") is None:
        monkeypatch.setattr("txtopo.explanation.explaining.active_session", lambda: None)
        monkeypatch.setattr(os, "cpu_count", lambda: 4)


def test_the_page_names_components_phases_streams_groupings_states_and_the_cut() -> None:
    page = str(topologies.words().explain(Config(carrier="rdd")))
    before, handover, after = page.partition("─ ─ the handover ")

    assert handover
    assert "processing phase" in before
    assert "commit phase" in after
    assert "   1  split × 4\n      basic bolt Split; runs in Spark tasks\n" in before
    assert "← split, stream long, by fields (word)" in after
    assert "→ long: word string" in before
    assert "table counts in sqlite:///words.db, opaque" in after
    assert max(map(len, page.splitlines())) <= 96


def test_no_password_is_shown_anywhere() -> None:
    told = topologies.words().explain()
    shown = f"{told}{told.svg()}{told.mermaid()}{json.dumps(told.to_json())}{told!r}"

    assert "postgresql://me:***@db/words" in shown
    assert "secret" not in shown


def test_json_has_the_keys_that_pages_and_scripts_read() -> None:
    told = topologies.words().explain().to_json()
    split = next(each for each in told["components"] if each["component"] == "split")

    assert {"component", "role", "class", "level", "phase", "parallelism"} <= split.keys()
    assert split["class"].endswith("topologies.Split")
    assert (split["level"], split["phase"], split["parallelism"]) == (1, "process", 4)
    assert split["streams"]["long"]["fields"] == [{"name": "word", "type": "string"}]
    edge = {"source": "split", "stream": "long", "target": "longest", "grouping": "fields (word)"}
    assert edge in told["edges"]
    assert edge in told["handover"]
    assert {"source", "stream", "target", "grouping"} == told["edges"][0].keys()
    assert json.loads(json.dumps(told)) == told


def test_components_of_the_commit_phase_are_right_of_all_others() -> None:
    components = topologies.words().explain().components
    letters = next(each for each in components if each.component == "dead_letters")

    processing = max(each.column for each in components if each.phase == "process")
    assert all(each.column > processing for each in components if each.phase == "commit")
    assert letters.level == 2


def test_aggregates_say_where_their_rows_are_combined() -> None:
    (counts,) = [c for c in topologies.words().explain().components if c.component == "counts"]
    (count,) = [c for c in topologies.frames().explain().components if c.component == "count"]

    assert [(a.column, a.aggregate, a.combined) for a in counts.aggregates] == [
        ("n", "Count()", "columns"),
        ("mean", "Mean(length)", "columns"),
        ("last", "Last(length, length)", "Python"),
    ]
    assert [a.combined for a in count.aggregates] == ["columns"]


@pytest.mark.parametrize(
    ("config", "carrier", "slots"),
    [
        (Config(), "resident", None),
        (Config(slots=3), "resident", 3),
        (Config(slots=4), "rdd", 4),
        (Config(carrier="rdd"), "rdd", None),
        (Config(carrier="dataframe"), "dataframe", None),
        (Config(carrier="local"), "local", 1),
        (Config(carrier="resident", slots=2), "resident", 2),
    ],
)
def test_the_carrier_and_its_slots_are_those_of_a_start(
    config: Config, carrier: str, slots: int | None
) -> None:
    choice = topologies.words().explain(config).carrier

    assert (choice.carrier, choice.slots) == (carrier, slots)


def test_dataframes_take_the_carrier_dataframe_with_one_txid_a_job() -> None:
    told = topologies.frames().explain()
    runs = {each.component: each.runs for each in told.components}

    assert told.carrier.carrier == "dataframe"
    assert told.run_txids == 1
    assert "each txid has one Spark job" in told.work
    assert runs["double"].startswith("as a Spark plan")
    assert "its rows become tuples" in runs["double"]


def test_a_streaming_query_brings_the_batches_of_a_stream_spout() -> None:
    told = topologies.query().explain(Config(slots=2))

    assert "as long as the query keeps its checkpoint" in told.delivery
    assert "one micro-batch at a time" in told.work
    assert told.window_txids is None


def test_an_at_least_once_topology_tells_of_trees_and_ackers() -> None:
    told = topologies.lines().explain(AtLeastOnceConfig(max_spout_pending=500))

    assert told.kind == "at-least-once"
    assert told.carrier.carrier == "local"
    assert told.carrier.slots == 2
    assert told.work.startswith("up to 500 trees are pending for each spout task; the acker of")
    assert "at least once" in told.delivery
    assert "30 to 60 s" in told.failure
    assert "the handover" not in str(told)
    assert told.handover == ()


def test_without_ackers_it_is_at_most_once() -> None:
    assert "at most once" in topologies.lines().explain(AtLeastOnceConfig(ackers=0)).delivery


def test_how_many_txids_share_a_job_follows_from_the_window() -> None:
    told = topologies.words().explain(Config(max_spout_pending=6))

    assert (told.window_txids, told.run_txids) == (6, 2)
    assert "up to 2 consecutive txids together" in told.work


@pytest.mark.parametrize(
    ("opaque", "config", "said"),
    [
        (False, Config(), "later batches that are already"),
        (True, Config(), "are planned again"),
        (False, Config(attempts_max=3), "at the 3rd counted failure"),
        (False, Config(attempts_max=None), "without limit"),
    ],
)
def test_what_is_replayed_and_kept_is_said(opaque: bool, config: Config, said: str) -> None:
    assert said in topologies.words(opaque=opaque).explain(config).failure


def test_a_commit_with_one_task_each_runs_in_the_driver() -> None:
    told = topologies.words().explain()

    assert told.commit is not None
    assert told.commit.startswith("in the driver")
    assert not any("a separate Spark job" in each for each in told.advice)


def test_a_committer_with_many_tasks_costs_a_job_for_each_txid() -> None:
    told = topologies.words(tasks=3).explain(Config(carrier="rdd"))

    assert told.commit is not None
    assert told.commit.startswith("in a Spark job for each txid, since 'longest' has 3 tasks")
    assert any("a separate Spark job" in each for each in told.advice)


CHAIN = topologies.chain(["lines", "pass"])


@pytest.mark.parametrize(
    ("topology", "config", "said"),
    [
        (CHAIN, Config(), "store, with up to 30 txids waiting for their turn; one"),
        (CHAIN, Config(group_txids_max=3), "with up to 3 txids waiting"),
        (CHAIN, Config(group_txids_max=1), "Config.group_txids_max is 1"),
        (topologies.words(tasks=3), Config(), "'longest' has several tasks in the commit phase"),
        (topologies.frames(), Config(), "its spout emits DataFrames"),
        (topologies.words(), Config(), "aggregate 'counts' has a First or Last, which the"),
        (topologies.sums(), Config(), "aggregate 'sums' depends on the order of its additions"),
        (topologies.transactional(), Config(), "'keep' may read its state 'kept', which is"),
        (topologies.own_database(), Config(), "bolt 'write' of the commit phase does not declare"),
        (topologies.foreign(), Config(), "one at a time if the emitter of spout 'lines' has a"),
    ],
)
def test_how_many_txids_one_write_takes_is_said_or_why_one(
    topology: Topology, config: Config, said: str
) -> None:
    told = topology.explain(config).commit

    assert told is not None
    assert said in told
    assert ("one txid at a time, since" in told) == ("with up to" not in told)


def test_states_of_one_database_are_said_to_share_a_transaction_if_there_are_several() -> None:
    shared = "in one transaction of its store, which states of one database share"

    assert shared in str(topologies.words().explain().commit)
    assert "share" not in str(topologies.chain(["first"]).explain().commit)


def test_a_streaming_query_says_nothing_of_groups() -> None:
    """It brings one micro-batch at a time."""
    told = topologies.query().explain().commit

    assert told is not None
    assert told.endswith("in one transaction of its store")


def test_more_tasks_than_slots_are_warned_of_and_as_many_are_not() -> None:
    def warned(slots: int) -> bool:
        told = topologies.words().explain(Config(slots=slots))
        return any("more tasks than there are slots" in each for each in told.advice)

    assert warned(2)
    assert not warned(4)


def test_spouts_in_the_driver_take_no_slots() -> None:
    (told,) = topologies.lines().explain(AtLeastOnceConfig(slots=1)).advice[:1]

    assert told.startswith("'split' (4), 'count' (2) have more tasks")


@pytest.mark.spark
def test_with_a_session_it_names_the_carrier_and_the_slots_that_a_start_takes(
    spark: SparkSession,
) -> None:
    kinds = {RddCarrier: "rdd", FrameCarrier: "dataframe"}
    for topology in (topologies.words(tasks=2), topologies.frames()):
        opened = open_carrier(Config(), spark, engine=topology.graph.has_engine_part)
        choice = topology.explain(spark=spark).carrier

        assert (choice.carrier, choice.slots) == (kinds[type(opened)], opened.default_slots())
    assert topologies.query().explain(spark=spark).carrier.carrier == "dataframe"
    assert topologies.lines().explain(spark=spark).carrier.carrier == "resident"
    assert "the session was passed in" in topologies.words().explain(spark=spark).carrier.why


@pytest.mark.spark
def test_a_session_of_txtopos_own_gets_resident_slots_and_keeps_a_core_free(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txtopo.carriers.session._own", {spark.sparkContext.applicationId})
    topology = topologies.words(tasks=2)

    assert topology.explain(spark=spark).carrier.carrier == "resident"
    assert topology.explain(spark=spark).carrier.slots == 1
    chosen = with_carrier(Config(), spark, engine=False, slots_max=2)
    assert (chosen.carrier, chosen.slots) == ("resident", 1)

    told = topology.explain(Config(slots=2), spark).carrier
    assert told.carrier == "rdd"
    assert "would keep 2 of 2 free cores" in told.why


@pytest.mark.parametrize(
    ("offer", "engine", "carrier", "said"),
    [
        (SessionOffer(True, "", 4), False, "resident", "with free cores"),
        (SessionOffer(True, "", 1), False, "rdd", "keep 1 of 1 free cores, and leave none"),
        (SessionOffer(True, "it was given", 4), False, "rdd", "not 'resident': it was given"),
        (SessionOffer(True, "", 4), True, "dataframe", "for DataFrames"),
        (SessionOffer(False, "no place", 4), False, "dataframe", "on Spark Connect"),
    ],
)
def test_auto_says_why_it_takes_a_carrier(
    offer: SessionOffer, engine: bool, carrier: str, said: str
) -> None:
    chosen, why = carrier_choice(Config(), offer, engine=engine)

    assert chosen == carrier
    assert said in why


def test_without_zeromq_auto_takes_rdd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)

    assert carrier_choice(Config(), SessionOffer(True, "", 4), engine=False)[0] == "rdd"


def test_a_state_in_memory_under_a_lasting_position_is_warned_of() -> None:
    builder = TransactionalTopologyBuilder("memory", "spout", topologies.spout())
    builder.set_bolt("count", topologies.counting("memory:")).fields_grouping("spout", "word")
    topology = builder.build_topology()

    assert any("is lost when this process ends" in each for each in topology.explain().advice)
    assert not topology.explain(Config(zookeeper="memory")).advice


def test_a_stream_that_nobody_reads_is_warned_of() -> None:
    builder = TransactionalTopologyBuilder("unread", "spout", topologies.spout())
    builder.set_bolt("split", topologies.Split()).shuffle_grouping("spout")
    builder.set_bolt("count", topologies.counting()).fields_grouping("split", "word")

    assert builder.build_topology().explain().advice == (
        "no bolt subscribes to stream 'long' of 'split'; tuples emitted there are dropped",
    )


def test_settings_that_a_start_would_refuse_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"got AtLeastOnceConfig; .* takes a Config\(…\)"):
        topologies.words().explain(AtLeastOnceConfig(ackers=0))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has DataFrames"):
        topologies.frames().explain(Config(carrier="resident"))


def test_emojis_and_line_ends_never_become_ids() -> None:
    for id in ("a\nb", "🎉", "a/b"):
        with pytest.raises(TopologyError, match=r"bolt id (has|is)"):
            topologies.chain(["source", id])


def test_ids_that_turn_the_text_around_are_escaped() -> None:
    told = topologies.chain(topologies.HOSTILE).explain()

    assert "right\\u202eto left" in str(told)
    assert "\u202e" not in str(told)
    assert "#8238;" not in told.mermaid()
    assert "\u202e" not in re.sub(r'data-[a-z]+="[^"]*"', "", told.svg())


def test_what_cannot_be_printed_in_a_url_is_escaped() -> None:
    builder = TransactionalTopologyBuilder("odd", "spout", topologies.spout())
    state = open_state("sqlite:///a\x1b[2J\n<b>.db")
    count = PersistentAggregate(state, "word", Count())
    builder.set_bolt("count", count).fields_grouping("spout", "word")
    told = builder.build_topology().explain()

    for shown in (str(told), told.svg(), told.mermaid()):
        assert "\x1b" not in shown
        assert "<b>" not in re.sub(r"sqlite:///\S*", "", shown)
