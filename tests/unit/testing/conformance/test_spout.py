"""Every spout of ours keeps the rules of its kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.sources.data_sources import LinesSource, SimpleLinesSource
from tests.unit.testing.conformance.spout_sources import (
    DeltaChangesSource,
    DeltaSource,
    FilesSource,
    LinesOfFiles,
    MemorySource,
    OpaqueMemorySource,
    QuerySource,
    ScriptedSource,
    SequenceSource,
    SimpleLines,
)
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from txtopo.testing import ScriptedSpout
from txtopo.testing.conformance import SpoutSource, SpoutSuite


class TestMemory(SpoutSuite):
    @pytest.fixture
    def source(self) -> SpoutSource:
        return MemorySource()


class TestOpaqueMemory(SpoutSuite):
    @pytest.fixture
    def source(self) -> SpoutSource:
        return OpaqueMemorySource()


class TestSequence(SpoutSuite):
    @pytest.fixture
    def source(self) -> SpoutSource:
        source = SequenceSource()
        source.first = source.then = MemoryTransactionalSpout
        return source


class TestOpaqueSequence(SpoutSuite):
    """Of a transactional and an opaque part."""

    @pytest.fixture
    def source(self) -> SpoutSource:
        source = SequenceSource()
        source.first, source.then = MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
        return source


class TestFiles(SpoutSuite):
    @pytest.fixture
    def source(self, tmp_path: Path) -> SpoutSource:
        return FilesSource(tmp_path)


class TestFilesInPartitions(SpoutSuite):
    """Each batch is cut into parts of files, one for each task."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> SpoutSource:
        return FilesSource(tmp_path, partitions=3)


class TestDelta(SpoutSuite):
    @pytest.fixture
    def source(self, tmp_path: Path) -> SpoutSource:
        return DeltaSource(tmp_path)


class TestDeltaChanges(SpoutSuite):
    @pytest.fixture
    def source(self, tmp_path: Path) -> SpoutSource:
        return DeltaChangesSource(tmp_path)


class TestQuery(SpoutSuite):
    @pytest.fixture
    def source(self, tmp_path: Path) -> SpoutSource:
        return QuerySource(tmp_path)


class TestScripted(SpoutSuite):
    @pytest.fixture
    def source(self) -> SpoutSource:
        return ScriptedSource()


class TestOpaqueScripted(SpoutSuite):
    @pytest.fixture
    def source(self) -> SpoutSource:
        source = ScriptedSource()
        source.kind = ScriptedSpout
        return source


class TestDataSource(SpoutSuite):
    @pytest.fixture
    def source(self, tmp_path: Path) -> SpoutSource:
        rows_max = SpoutSource.batch_rows_max
        return LinesOfFiles(tmp_path, LinesSource, repeatable=True, batch_rows_max=rows_max)


class TestSimpleDataSource(SpoutSuite):
    @pytest.fixture
    def source(self, tmp_path: Path) -> SpoutSource:
        return SimpleLines(tmp_path, SimpleLinesSource)
