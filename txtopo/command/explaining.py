"""``txtopo explain``: shows what a topology is and how it would run."""

from __future__ import annotations

import click

from txtopo.command.choices import Choices, choices, modules_option
from txtopo.command.loading import load_topology
from txtopo.command.output import print_json, print_line, print_note


@click.command()
@click.argument("place", metavar="MODULE:ATTRIBUTE")
@click.option("--all", "whole", is_flag=True, help="Print each component, and why.")
@click.option("--mermaid", is_flag=True, help="Print a diagram in Mermaid's language.")
@click.option("--svg", is_flag=True, help="Print a picture, as SVG.")
@modules_option
@choices
def explain(chosen: Choices, place: str, *, whole: bool, mermaid: bool, svg: bool) -> None:
    """Explain what a topology is and would do.

    Five lines: the source, the work, what is computed and stored, and what a failure does. --all
    shows its graph, the handover, levels, what is grouped, and why. Nothing is started. Needs the
    topology's module, or its YAML file.

    \b
    Example:
      txtopo explain payments.py:topology --svg > payments.svg
    """
    if whole + mermaid + svg + chosen.json > 1:
        raise click.UsageError("got two of --all, --mermaid, --svg, --json; expected one")
    topology = load_topology(place, chosen.modules)
    explanation = topology.explain(chosen.config_of(topology))
    if chosen.json:
        print_json(explanation.to_json())
    elif mermaid:
        print_line(explanation.mermaid())
    elif svg:
        print_line(explanation.svg())
    elif whole:
        print_line(str(explanation))
    else:
        print_line(explanation.essence())
        print_note("--all shows each component, and why")
