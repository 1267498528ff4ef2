"""The checkers, one for each promise; they judge a history afterwards."""

from txtopo.testing.checkers.evidence import Evidence, Violation
from txtopo.testing.checkers.exact_count import ExactCount
from txtopo.testing.checkers.liveness import Liveness
from txtopo.testing.checkers.offset_chain import OffsetChain
from txtopo.testing.checkers.prefix import Prefix
from txtopo.testing.checkers.replay import TraceReplay
from txtopo.testing.checkers.skew import Skew
from txtopo.testing.checkers.txid_discipline import TxidDiscipline
from txtopo.testing.checkers.undo import Undo
from txtopo.testing.checkers.zombies import Zombies

__all__ = [
    "Evidence",
    "ExactCount",
    "Liveness",
    "OffsetChain",
    "Prefix",
    "Skew",
    "TraceReplay",
    "TxidDiscipline",
    "Undo",
    "Violation",
    "Zombies",
]
