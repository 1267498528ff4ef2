"""``txtopo``: runs the command line, and turns its outcome into an exit code.

=====  ===================================================================
code   meaning
=====  ===================================================================
0      done
1      failed
2      the call was wrong: arguments, settings, or the topology
3      refused, since a promise would be broken (``PromiseError``)
4      ZooKeeper, a store or a page could not be reached (``InfrastructureError``)
5      another coordinator leads now (``FencedError``); start again, as its standby
130    interrupted
=====  ===================================================================
"""

from __future__ import annotations

import io
import re
import sys
import traceback

import click

from txtopo.command.choices import Choices
from txtopo.command.group import commands
from txtopo.command.output import print_note
from txtopo.errors import (
    ConfigError,
    EmitError,
    FencedError,
    InfrastructureError,
    PromiseError,
    StateUsageError,
    TopologyError,
    TxtopoError,
)
from txtopo.log_records import one_line
from txtopo.state.registry import redacted_url
from txtopo.uncaught import cause_line

DONE, FAILED, WRONG_CALL, REFUSED, UNREACHABLE, DEPOSED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit with its code."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run one command, and return its exit code; errors are printed in one line."""
    chosen = Choices()
    try:
        if not __debug__:
            raise click.UsageError(
                "Python runs with -O or PYTHONOPTIMIZE, which removes the checks that protect "
                "the exactly-once promise; run it without"
            )
        code = commands.main(arguments, prog_name="txtopo", standalone_mode=False, obj=chosen)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (click.Abort, KeyboardInterrupt):
        print_note("interrupted")
        return INTERRUPTED
    except click.ClickException as error:
        print_note(_text_of(error, sys.argv[1:] if arguments is None else arguments))
        return error.exit_code
    except TxtopoError as error:
        if chosen.traceback:
            traceback.print_exc()
        print_note(f"txtopo: {in_shell_words(str(error))}")
        if not chosen.traceback and (cause := cause_line(error)) is not None:
            print_note(f"  {cause}; --traceback shows where it was raised")
        return code_of(error)
    except Exception as error:  # noqa: BLE001 - of user code, or a mistake of ours
        if chosen.traceback:
            traceback.print_exc()
        else:
            print_note(f"txtopo: {one_line(error)}; --traceback shows where it was raised")
        return FAILED
    return code if isinstance(code, int) else DONE


def _text_of(error: click.ClickException, arguments: list[str]) -> str:
    """Return click's message, redacted: it repeats arguments, which may be URLs of stores."""
    shown = io.StringIO()
    error.show(shown)
    text = shown.getvalue().rstrip("\n")
    for each in arguments:
        text = text.replace(each, redacted_url(each))
    return text


# As messages write settings and operators' verbs, which programs read as well.
_SETTING = re.compile(r"Config\((\w+)=([^()]*)\)")
_VERB = re.compile(r"(?:call )?txtopo\.operations\.(\w+)")


def in_shell_words(text: str) -> str:
    """Return a message in which settings are options, and verbs of Python are commands."""
    text = _SETTING.sub(lambda m: f"--set {m[1]}={_setting_text(m[2])}", text)
    return _VERB.sub(lambda m: f"run txtopo {m[1]}" if m[1] in commands.commands else m[0], text)


def _setting_text(value: str) -> str:
    words = {"True": "true", "False": "false"}
    return words.get(value, re.sub(r"[\[\]{}'\"\s]", "", value))


def code_of(error: TxtopoError) -> int:
    """Return the exit code for an error."""
    match error:
        case ConfigError() | TopologyError() | StateUsageError() | EmitError():
            return WRONG_CALL
        case FencedError():
            return DEPOSED
        case PromiseError():
            return REFUSED
        case InfrastructureError():
            return UNREACHABLE
        case _:
            return FAILED
