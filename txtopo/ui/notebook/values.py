"""Values: finds the renderer that turns a value into HTML, by its class."""

from __future__ import annotations

from txtopo.runtime.handle import RunHandle
from txtopo.runtime.progress import Progress, ReliableProgress
from txtopo.state.reader import StateReader
from txtopo.state.registry import State
from txtopo.ui.notebook.runs import progress_html, reliable_progress_html, run_html
from txtopo.ui.notebook.states import reader_html, state_html


def html(value: object) -> str:
    """Return a run, a progress or a state as HTML."""
    match value:
        case RunHandle():
            return run_html(value.board)
        case Progress():
            return progress_html(value)
        case ReliableProgress():
            return reliable_progress_html(value)
        case StateReader():
            return reader_html(value)
        case _:
            assert isinstance(value, State), f"nothing shows a {type(value).__name__}"
            return state_html(value)
