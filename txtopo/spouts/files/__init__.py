"""Files as a transactional source: planned as ranges in the driver, read in the tasks."""

from txtopo.spouts.files.spout import FilesTransactionalSpout

__all__ = ["FilesTransactionalSpout"]
