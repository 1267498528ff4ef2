"""The group of all verbs of ``txtopo``."""

from __future__ import annotations

import click

from txtopo import __version__
from txtopo.command import (
    completion,
    doctor,
    explaining,
    figures,
    operations,
    reference,
    replaying,
    running,
    serving,
    settings,
    states,
    topologies,
    trying,
)
from txtopo.command.choices import common_options


class Verbs(click.Group):
    """A group whose verbs also accept the common options, so that they may follow the verb."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a verb, or a group of verbs."""
        _with_common_options(cmd)
        super().add_command(cmd, name)


def _with_common_options(verb: click.Command) -> None:
    verb.params += common_options(hidden=True)
    if isinstance(verb, click.Group):
        for each in verb.commands.values():
            _with_common_options(each)


@click.group(
    cls=Verbs,
    params=common_options(hidden=False),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="These options can also follow the verb.",
)
@click.version_option(__version__, prog_name="txtopo")
def commands() -> None:
    """Run topologies, look at those that run, and repair what faults leave behind.

    \b
    Exit codes: 0 done, 1 failed, 2 wrong call, 3 refused by a promise,
    4 not reachable, 5 deposed, 130 interrupted.
    """


# One line for each verb, in alphabetical order.
commands.add_command(topologies.activate)
commands.add_command(completion.completion)
commands.add_command(settings.config)
commands.add_command(topologies.deactivate)
commands.add_command(doctor.doctor)
commands.add_command(figures.errors)
commands.add_command(explaining.explain)
commands.add_command(operations.forget_topology)
commands.add_command(operations.fork_topology)
commands.add_command(reference.show_reference)
commands.add_command(topologies.kill)
commands.add_command(figures.lag)
commands.add_command(topologies.list_topologies)
commands.add_command(operations.quarantine_batch)
commands.add_command(operations.rebuild_topology)
commands.add_command(operations.repair_topology)
commands.add_command(replaying.replay_txid)
commands.add_command(operations.rewind_topology)
commands.add_command(running.run)
commands.add_command(topologies.show)
commands.add_command(states.state)
commands.add_command(trying.try_program)
commands.add_command(serving.ui)
commands.add_command(operations.verify_topology)
commands.add_command(figures.watch)
