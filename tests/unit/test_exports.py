"""The public names, and that importing them needs no third party."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [
    "txtopo",
    "txtopo.bolts",
    "txtopo.builders",
    "txtopo.operations",
    "txtopo.outbox",
    "txtopo.plugins.ensembles",
    "txtopo.plugins.stores",
    "txtopo.plugins.spouts",
    "txtopo.spouts",
    "txtopo.state",
    "txtopo.topology",
    "txtopo.ensemble",
]


# A name that is added here, or taken away, is a decision: users import it.
FACES = {
    "txtopo": """
        __version__
        TransactionalTopologyBuilder StreamBuilder TopologyBuilder Topology ReliableTopology Config
        AtLeastOnceConfig ZooKeeper Pace Page
        topology_from_yaml
        ArrowBolt BasicBolt BatchBolt Bolt Committer DataFrameBolt DeadLetters PersistentAggregate
        Spout Fields Avro Debezium Protobuf Stream Tuple is_tick TransactionAttempt
        CustomStreamGrouping ArrowOutputCollector BatchOutputCollector OutputCollector
        SpoutOutputCollector FrameContext TaskContext
        open_state Count CountDistinct First Last Max Mean Min OwnAggregate Sum TopN
        open_session TopologyRun ReliableRun
        TopologyListener ProgressBar Progress AckerProgress ReliableProgress TopologyEvent
        Restart Restarting Started Leading Standby Stopped BatchPlanned ProcessingStarted
        BatchesProcessed CommitStarted BatchCommitted BatchFailed BatchesAbandoned
        Progressed TreesFailed SlotLost ErrorReported
        TxtopoError TopologyError TopologyWarning ConfigError FieldsError StateUsageError
        FailedException RecordFailed TooManyDeadLetters InfrastructureError StoreUnavailable
        PromiseError AuthError SourceDataLost
    """,
    "txtopo.bolts": """
        Append ArrowBolt BasicBolt BatchBolt Bolt Committer DataFrameBolt DeadLetters KafkaSink
        PersistentAggregate
    """,
    "txtopo.spouts": """
        KafkaTransactionalSpout KafkaOpaqueSpout FilesTransactionalSpout QueryTransactionalSpout
        ClockTransactionalSpout DeltaTransactionalSpout DeltaDataFrameSpout
        DataFrameTransactionalSpout DataSourceSpout StreamSpout MemoryTransactionalSpout
        OpaqueMemoryTransactionalSpout Outage Recut SequenceSpout MemorySpout FileSpout QueueSpout
        KafkaSpout
    """,
    "txtopo.state": """
        Aggregate Count CountDistinct First FrameStateHandle FrameTransaction Last Ledger Max
        Mean Min OwnAggregate State StateHandle StateKind StateMode StateReader StateTransaction
        Sum TopN open_state read_together register_backend
    """,
    "txtopo.streams": """
        DataStream DeltaLookup DueTimer FilesLookup Grouped Lookup QueryLookup RowWindowed
        StreamBuilder Table Timers Windowed session sliding tumbling
    """,
    "txtopo.outbox": """
        OutboxRow Publisher
    """,
    "txtopo.plugins.ensembles": """
        TransactionalState Leadership Node Step Put CompareAndSet Delete Check VersionConflict
        EnsembleFactory register_ensemble MemoryTransactionalState encode_steps decode is_gone
        Json ZooKeeper AuthError BatchMetadataTooLarge ConfigError CoordinatorUnavailable
        CorruptNodeError EmitError StateUsageError ConnectingFactory Server
    """,
    "txtopo.plugins.spouts": """
        TransactionalSpout TransactionalCoordinator TransactionalEmitter LastBatch
        PartitionedTransactionalSpout PartitionedCoordinator PartitionedTransactionalEmitter
        OpaquePartitionedTransactionalSpout OpaquePartitionedTransactionalEmitter
        Spout Fields Stream Json Config TaskContext TransactionAttempt
        BatchOutputCollector SpoutOutputCollector
        AuthError ConfigError EmitError FailedException InfrastructureError NonRepeatableBatch
        OffsetRegression PromiseError SchemaVersionError Server SourceDataLost
    """,
    "txtopo.plugins.stores": """
        Aggregate AnchoredFactory BOUND BackendFactory BackingMap CheckingFactory Claim
        ClientFactory ComparesAndPuts ConnectingFactory Contents CopyAttempt Database Field Fields
        FrameBackend FrameFactory FrameSnapshot FrameWrites GroupAttempt Key LEDGER_SCHEMA Ledger
        MapFactory Merges
        NamingFactory OpaqueMap Owner Server
        Puts Replacement Row QueryBackend QueryRows RowBackend RowText Snapshot Standing
        StateBackend StateKind StateMode StateSize StateTable Statement StoredUndo
        TransactionAttempt missing_undo redo_repeats statements_of undos_from_text undos_of
        undos_to_text
        TransactionalMap Values Writes
        backing_map_factory changed_rows checked_partials claimed column_schema combines_in_store
        declaration
        expired_keys expiring final_values listed_states log_rows mean_names parsed_declaration
        redacted_url retired_of TableChange check_none_taken not_allowed refused_change table_change
        register_backend standing written_keys Witness check_undone witness_of
    """,
    "txtopo.testing": """
        simulate SimulationFailed SimulatedCluster
        complete_topology Completed TrackedTopology
        ScriptedTransactionalSpout ScriptedSpout FeederSpout Late Poison Shared
    """,
}

# The conformance suites are for authors of plug-ins.
FACES_OF_EXAMPLES = re.compile(
    r"txtopo(\.(state|spouts|streams|bolts|operations|outbox|plugins\.\w+|testing(\.conformance)?))?"
)


@pytest.mark.parametrize("face", FACES)
def test_a_face_has_these_names(face: str) -> None:
    assert importlib.import_module(face).__all__ == sorted(FACES[face].split())


def test_examples_import_from_faces_only() -> None:
    for path in (ROOT / "examples").rglob("*.py"):
        for module in modules_imported(path):
            if module.split(".")[0] == "txtopo":
                assert FACES_OF_EXAMPLES.fullmatch(module), f"{path.name} imports {module}"


def modules_imported(path: Path) -> list[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
    return plain + [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]


def test_the_version_is_the_one_that_is_installed() -> None:
    assert importlib.import_module("txtopo").__version__ == version("txtopo")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'open_sesion'"):
        _ = importlib.import_module("txtopo").open_sesion


@pytest.mark.parametrize(
    "package", [*PACKAGES, "txtopo.streams", "txtopo.testing", "txtopo.testing.conformance"]
)
def test_all_names_are_sorted_and_there(package: str) -> None:
    module = importlib.import_module(package)

    assert list(module.__all__) == sorted(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)
    assert set(module.__all__) <= set(dir(module)), "a shell completes them"


@pytest.mark.integration
def test_an_import_pulls_in_no_third_party() -> None:
    code = (
        f"import sys; before = set(sys.modules); import {', '.join(PACKAGES)}; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(new - set(sys.stdlib_module_names) - {'txtopo'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


# What README's first program does without, or names itself: all wings, and parts of the core.
NOT_AT_FIRST = (
    *("command", "explanation", "frames", "kafka", "operations", "plugins", "reliable"),
    *("resident", "sources", "streams", "testing", "ui", "yaml"),
    *("coordinator", "runtime.progress", "spouts.memory"),
)


@pytest.mark.integration
def test_an_import_loads_what_a_first_program_needs() -> None:
    code = "import sys, txtopo; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())

    assert "txtopo.builders.transactional" in loaded
    for module in NOT_AT_FIRST:
        name = f"txtopo.{module}"
        assert find_spec(name) is not None, f"there is no {name}"
        assert not {each for each in loaded if f"{each}.".startswith(f"{name}.")}
    assert not loaded & {"asyncio", "email", "importlib.metadata", "socket", "zipfile"}


def test_only_the_conformance_suites_need_pytest() -> None:
    suites = ROOT / "txtopo" / "testing" / "conformance"

    needs = {
        path.parent
        for path in (ROOT / "txtopo").rglob("*.py")
        if re.search(r"^\s*(?:import|from) pytest\b", path.read_text(), re.MULTILINE)
    }
    assert needs == {suites}
