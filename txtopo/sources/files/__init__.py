"""Files as a source: the driver plans ranges, the tasks read them."""

from txtopo.sources.files.spout import FilesTransactionalSpout

__all__ = ["FilesTransactionalSpout"]
