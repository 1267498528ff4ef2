"""Densities: how many rows the bytes of a file hold, about, from its beginning.

For pacing, which asks how many rows wait. Counting them would read every file twice, so the rows at
the beginning of the first file stand for all. The estimate decides only when a batch is worth
planning and how a limit is shared out: what a batch has is counted exactly.
"""

from __future__ import annotations

from txtopo.errors import TxtopoError
from txtopo.sources.files.reading import parquet_rows
from txtopo.sources.files.source import FileFormat, FileSource, SourceFile

SAMPLE_BYTES = 64 * 1024
"""Some hundred rows of usual length: enough for an estimate, and one read of a disk."""


class Densities:
    """Estimates the rows of files, and remembers the file that was asked for last."""

    def __init__(self, source: FileSource, format: FileFormat) -> None:
        self._source, self._format = source, format
        self._known: tuple[SourceFile, int, float | None] | None = None

    def rows_per_byte(self, file: SourceFile, start: int = 0) -> float | None:
        """Return how many rows a byte of a file holds; None if its beginning cannot be read.

        A file that cannot be read is not an error here: whoever reads its rows says what is wrong.

        Args:
            file: The file.
            start: Where to begin: the number of a byte in a file of lines.
        """
        if self._known is None or self._known[:2] != (file, start):
            try:
                density = self._rows_per_byte(file, start)
            except (TxtopoError, OSError, ValueError):
                density = None
            self._known = file, start, density
        return self._known[2]

    def _rows_per_byte(self, file: SourceFile, start: int) -> float:
        if not self._format.lines:
            return parquet_rows(self._source, file) / max(file.size, 1)
        compression = self._format.compression(file.name)
        with self._source.open(file) as opened:
            if compression is None:
                opened.seek(start)
                sample = opened.read(SAMPLE_BYTES)
                size = len(sample)
            else:
                import pyarrow as pa

                with pa.CompressedInputStream(opened, compression) as unpacked:
                    sample = unpacked.read(SAMPLE_BYTES)
                    size = opened.tell()
        lines: int = sample.count(b"\n") + (not sample.endswith(b"\n"))
        return lines / max(size, 1)
