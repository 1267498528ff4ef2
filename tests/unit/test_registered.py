"""What a wing provides is registered once, and loaded when the core first asks for it."""

from __future__ import annotations

import pytest

from txtopo.frames.engine import FrameEngine
from txtopo.registered import Registered
from txtopo.runtime.engine import run_engine


def test_it_is_loaded_when_it_is_asked_for() -> None:
    asked: list[str] = []
    engine: Registered[int] = Registered("an engine")
    engine.register(lambda: len(asked))

    assert engine.get() == 0
    asked.append("again")
    assert engine.get() == 1


def test_what_nobody_registers_is_a_mistake_of_ours() -> None:
    engine: Registered[int] = Registered("an engine")

    with pytest.raises(AssertionError, match="an engine: nothing is registered"):
        engine.get()


def test_the_engine_of_plans_runs_them_as_well() -> None:
    assert isinstance(run_engine(), FrameEngine)
