"""Hunt: runs the simulator of the tree it is in, seed by seed, until it sees a violation.

Run in a process of its own, since the tree has a bug planted:
``python -m tests.faults.mutants.hunt 1000``
in the copy. ``--slots`` runs the simulation of resident slots. A number after the seeds is the core
to stay on. The last line of the output is a JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import txtopo
from tests.faults.slots.bolts import simulate_bolt_slots
from tests.faults.slots.simulation import SlotScenario, simulate_slots
from txtopo.testing.simulation.campaign import Simulator, Verdict
from txtopo.testing.simulation.scenario import Scenario

# A bug that was planted breaks a rule, not the language: these say that the patch itself is wrong.
CARELESS = (AttributeError, ImportError, NameError)


def hunt(seeds: int) -> dict[str, Any]:
    """Return the verdict on the first seed that failed, or how many seeds ran."""
    simulator = Simulator()
    try:
        for seed in range(seeds):
            found = look_at(simulator, seed)
            if found is not None:
                return {"seed": seed, **found}
    finally:
        simulator.close()
    return {"survived": seeds}


def hunt_slots(seeds: int) -> dict[str, Any]:
    """Do the same with resident slots."""
    for seed in range(seeds):
        scenario = SlotScenario.drawn(seed)
        violations = [*simulate_slots(scenario).violations, *simulate_bolt_slots(scenario)]
        if violations:
            what = violations[0].what
            if any(error.__name__ in what for error in CARELESS):
                return {"seed": seed, "careless": what}
            return {"seed": seed, "checker": violations[0].checker, "what": what}
    return {"survived": seeds}


def look_at(simulator: Simulator, seed: int) -> dict[str, Any] | None:
    """Run one seed and return what is wrong with it."""
    try:
        verdict = simulator.run(Scenario.drawn(seed))
    except CARELESS as error:
        return {"careless": repr(error)}
    except Exception as error:  # noqa: BLE001 - the simulator itself fell over the bug
        return {"checker": "simulator", "what": repr(error)}
    careless = errors_of_the_patch(verdict)
    if careless:
        return {"careless": careless[0]}
    if verdict.violations:
        first = verdict.violations[0]
        return {"checker": first.checker, "what": first.what}
    return None


def errors_of_the_patch(verdict: Verdict) -> list[str]:
    """Return the errors with which runs ended though no rule of the protocol could bring them."""
    errors = (ended.error for ended in verdict.history.endings)
    return [repr(error) for error in errors if isinstance(error, CARELESS)]


if __name__ == "__main__":
    here = Path(__file__).parents[3].resolve()
    assert Path(txtopo.__file__).is_relative_to(here), f"{txtopo.__file__} is not below {here}"
    arguments = [each for each in sys.argv[1:] if each != "--slots"]
    for core in arguments[1:]:
        os.sched_setaffinity(0, {int(core)})
    found = hunt_slots if "--slots" in sys.argv else hunt
    print(json.dumps(found(int(arguments[0]))))
