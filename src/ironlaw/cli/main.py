"""``ironlaw VERB``: finds the verb's module, runs it, and turns an IronlawError into one line and an exit status."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from typing import Any

import click

from ironlaw import __version__
from ironlaw.errors import IronlawError, nearest_names

VERBS = {
    "estimate": ("ironlaw.cli.estimate", "Estimate one training run: fit, step time, bound, MFU, days, money, energy."),
    "plan": ("ironlaw.cli.plan", "Search every plan for a question: the best, the next, why, how many, what to buy."),
    "compare": ("ironlaw.cli.compare", "Compare accelerators for a job: how many, how fast, what a token costs, what binds."),
    "solve": ("ironlaw.cli.solve", "GPUs, time, tokens, MFU or budget from the others, the steps and usual errors checked."),
    "sweep": ("ironlaw.cli.sweep", "A table of runs over batch sizes, sequence lengths, models, tokens and counts."),
    "roofline": ("ironlaw.cli.roofline", "Which roof an operator, a step, a collective or a measurement is under."),
    "lessons": ("ironlaw.cli.lessons", "Try every optimisation on a plan: what it gains, what to combine."),
    "money": ("ironlaw.cli.money", "What a run costs to rent, reserve or own; its energy and carbon."),
    "goodput": ("ironlaw.cli.goodput", "How often a run fails, by size and component, and what checkpoints and restarts cost."),
    "data": ("ironlaw.cli.data", "Whether storage, workers and transfers keep up with the step."),
    "sites": ("ironlaw.cli.sites", "Train across data centres: distance, exchange, waiting, cost, power and carbon."),
    "scaling": ("ironlaw.cli.scaling", "Parameters, tokens and compute of least loss; batch and learning rate."),
    "inference": ("ironlaw.cli.inference", "Serve a model, to first order: cache, prompt, tokens a second, what binds."),
    "diagnose": ("ironlaw.cli.diagnose", "From a trace or log: the roof that binds, what to try, why it differs from the estimate."),
    "validate": ("ironlaw.cli.validate", "How wrong estimates are: published runs, or your own, against predictions."),
    "runs": ("ironlaw.cli.runs", "Keep measured runs: list, show, compare, gate."),
    "catalog": ("ironlaw.cli.catalog", "List, show and check the catalogue of devices, models, prices and calibrations."),
}


class Verbs(click.Group):
    """A group that knows its verbs by name and imports one only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order of VERBS."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The verb's command, imported now; a wrong name is told its nearest."""
        del ctx
        if name not in VERBS:
            near = nearest_names(name, VERBS)
            hint = f"; nearest: {', '.join(near)}" if near else f"; verbs are {', '.join(VERBS)}"
            raise click.UsageError(f"no verb {name!r}{hint}")
        command: click.Command = importlib.import_module(VERBS[name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs with their one-line help, without importing any."""
        del ctx
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit status: 0 answered, 1 the answer is no, 2 the question is wrong, 3 an input cannot be read, 4 inconclusive.",
)
@click.version_option(__version__, prog_name="ironlaw")
def cli() -> None:
    """Say what a large training run will take, before a dollar is spent on it."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    if sys.stdout is None:
        return 3
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal without block characters shows question marks, not a traceback
    try:
        asked = sys.argv[1:] if arguments is None else arguments
        status: Any = cli.main(asked or ["--help"], prog_name="ironlaw", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except IronlawError as error:
        return said(str(error), error.exit_status)
    except click.UsageError as error:
        group = error.ctx.command if error.ctx else None
        if isinstance(group, click.Group) and error.ctx and error.message == error.ctx.get_help():  # nothing after a verb of verbs
            known = ", ".join(group.list_commands(error.ctx))
            return said(f"{error.ctx.command_path} lacks what to do: {known}; see {error.ctx.command_path} --help", 2)
        return said(error.format_message(), 2)
    except click.ClickException as error:
        return said(error.format_message(), 2)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        return said("stopped", 130)
    except (BrokenPipeError, SystemExit):  # click turns a closed pipe into an exit of 1, which would read as "the answer is no"
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return said(f"cannot write the answer: {error.strerror}", 3)


def said(message: str, status: int) -> int:
    """``status``, its reason written as one line without what a terminal would obey; a closed standard error does not change it."""
    line = "".join(c if c.isprintable() else "?" for c in message.replace("\n", " "))
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"ironlaw: {line}", err=True)
    return status


def run() -> None:
    """Entry point of the installed command."""
    gc.set_threshold(100_000)  # an answer lives as long as the process: early collections only walk modules that are still loading
    leave(main())


def leave(status: int) -> None:
    """End the process at once: the answer is written, and taking a hundred thousand objects apart is a tenth of a cold start."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # no stream, or nobody reads it any more
            stream.flush()
    os._exit(status)
