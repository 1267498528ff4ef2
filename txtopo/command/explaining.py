"""``txtopo explain``: shows what a topology is and how it would run."""

from __future__ import annotations

import click

from txtopo.command.choices import Choices, choices, modules_option
from txtopo.command.loading import load_topology
from txtopo.command.output import print_json, print_line


@click.command()
@click.argument("place", metavar="MODULE:ATTRIBUTE")
@click.option("--mermaid", is_flag=True, help="Print a diagram in Mermaid's language.")
@click.option("--svg", is_flag=True, help="Print a picture, as SVG.")
@modules_option
@choices
def explain(chosen: Choices, place: str, *, mermaid: bool, svg: bool) -> None:
    """Explain what a topology is and would do.

    Its graph, the handover, levels, what is grouped, and why; nothing is started. Needs the
    topology's module, or its YAML file.

    \b
    Example:
      txtopo explain payments.py:topology --svg > payments.svg
    """
    if mermaid + svg + chosen.json > 1:
        raise click.UsageError("got two of --mermaid, --svg, --json; expected one")
    topology = load_topology(place, chosen.modules)
    explanation = topology.explain(chosen.config_of(topology))
    if chosen.json:
        print_json(explanation.to_json())
    elif mermaid:
        print_line(explanation.mermaid())
    elif svg:
        print_line(explanation.svg())
    else:
        print_line(str(explanation))
