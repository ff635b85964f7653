"""``ironlaw VERB``: finds the verb's module, runs it, and turns an IronlawError into one line and an exit status."""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from ironlaw import __version__
from ironlaw.earlier import VERBS as SYNONYMS
from ironlaw.earlier import first_name
from ironlaw.errors import InputError, IronlawError, MissingOptionError, QuestionError, UnknownOptionError, nearest_names, one_line
from ironlaw.shown import SCHEMA_VERSION

if TYPE_CHECKING:
    from ironlaw.progress import Progress

PATIENCE = 3.0  # s that a person waits without a word
VERBS = {  # module in the package, and summary
    "estimate": ("cli.estimate", "Estimate one training run: memory fit, step time, bound, MFU, days, cost, energy."),
    "plan": ("cli.plan", "Search for the best plan: parallelism, batch and memory settings, number and kind of accelerators."),
    "compare": ("questions.compare.options", "Compare accelerators for a job: how many, how fast, cost of a token, what binds."),
    "solve": ("questions.solve.options", "Solve for GPUs, time, tokens, MFU or budget, step by step, with common errors checked."),
    "sweep": ("questions.sweep.options", "Tabulate runs over batch sizes, sequence lengths, models, tokens and numbers of GPUs."),
    "roofline": ("questions.roofline.options", "Find the roof that limits an operator, a step, a collective or a measurement."),
    "optimize": ("questions.optimize.options", "Try every optimisation on a plan: the gain of each, and which to combine."),
    "money": ("questions.money.options", "Price a run on rented, reserved or owned machines, with its energy and carbon."),
    "goodput": ("questions.goodput.options", "Estimate failures by size and component, and the time lost to checkpoints and restarts."),
    "elastic": ("questions.elastic.options", "Run on one node, one rack or a third less: plans, batch, spare nodes, spot machines."),
    "fleet": ("questions.fleet.options", "Share a reservation among several runs: order, accelerators, idle time, deadlines, power."),
    "data": ("questions.data.options", "Check whether storage, loader workers and transfers keep up with the step."),
    "sites": ("questions.sites.options", "Train across data centres: which sites to take, data exchange, waiting, cost, power and carbon."),
    "scaling": ("questions.scaling.options", "Find the parameters and tokens of least loss for a compute budget, and the batch."),
    "textbook": ("questions.textbook.options", "Show models and tables of the source documents, as printed and corrected: chapters."),
    "inference": ("questions.inference.options", "Estimate serving to first order: cache, prompt time, tokens per second, what binds."),
    "diff": ("questions.diff.options", "Compare two answers: what changed in inputs, catalogue or version, and which term moved."),
    "again": ("questions.again.options", "Ask the question of a saved answer again, with today's tool, and say what moved."),
    "read": ("cli.read", "Read a trainer's configuration: what is understood, from which line, and what is not."),
    "check": ("cli.check", "Check a trainer's configuration: does it run, does it fit, what is slow, what to change."),
    "emit": ("cli.emit", "Write a plan as the configuration of a framework, with what starts it, and why each line is there."),
    "diagnose": ("cli.diagnose", "Diagnose a trace or log: the roof that binds, what to try, how it differs from the estimate."),
    "validate": ("cli.validate", "Measure the error of estimates on published runs, or on your own."),
    "runs": ("cli.runs", "Store measured runs: list, show, compare, gate."),
    "figure": ("cli.figure", "Draw an answer as SVG, PNG or PDF, as a Vega-Lite specification, or as its data."),
    "serve": ("cli.serve", "Serve the page on this machine: answers to look at, change and send."),
    "open": ("cli.open", "Open a saved answer or a report on the page of this machine."),
    "site": ("cli.site", "Write validation, catalogue, documentation and estimates as pages for any static host."),
    "schema": ("cli.schema", "Print the JSON Schema of a verb's answers, for scripts that read them."),
    "catalog": ("cli.catalog", "List, show and check the catalogue of devices, models, prices and calibrations."),
    "completion": ("cli.completion", "Print the script that completes verbs, options and names in bash, zsh or fish."),
}


class Verbs(click.Group):
    """A group that lists verbs by name and imports one only when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order of VERBS."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The verb's command, imported now; the error of a wrong name lists the nearest verbs."""
        del ctx
        name = first_name(name)
        if name not in VERBS:
            near = list(dict.fromkeys(map(first_name, nearest_names(name, [*VERBS, *SYNONYMS]))))
            hint = f"; nearest: {', '.join(near)}" if near else f"; verbs are {', '.join(VERBS)}"
            raise QuestionError(f"no verb {name!r}{hint}", value=name, nearest=near)
        return command_of(name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs with their one-line help, without importing any."""
        del ctx
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


def command_of(verb: str) -> click.Command:
    """The verb's command; a question's is made from its options."""
    name, summary = VERBS[verb]
    module = importlib.import_module(f"ironlaw.{name}")
    if not name.startswith("questions."):
        command: click.Command = module.command
        return command
    from ironlaw.cli.question import question_command

    return question_command(verb, module.OPTIONS, summary, module.EXAMPLES, getattr(module, "ARGUMENTS", ("model",)))


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit status: 0 answered, 1 the answer is no, 2 the question is wrong, 3 an input cannot be read, 4 inconclusive.",
)
@click.version_option(__version__, prog_name="ironlaw")
def cli() -> None:
    """Predict time, memory, cost and energy of large training runs, and diagnose runs that happened."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    if sys.stdout is None:
        return report_error("standard output is closed: nothing can be printed", 3)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal without block characters shows question marks, not a traceback
    words = sys.argv[1:] if arguments is None else arguments
    try:
        with patience("Ctrl-C: the best so far" if words[:1] == ["plan"] else "Ctrl-C stops it"):
            status: Any = cli.main(words or ["--help"], prog_name="ironlaw", standalone_mode=False, obj=tuple(words))
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except IronlawError as error:
        return refuse(error, words)
    except click.ClickException as error:
        return refuse(usage_error(error), words)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        return report_error("stopped", 130)
    except (BrokenPipeError, SystemExit):  # click turns a closed pipe into an exit of 1, which would read as "the answer is no"
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        named = error.filename  # None where a stream fails: standard output
        if named is None:
            return report_error(f"cannot write the answer: {error.strerror}", 3)
        return refuse(InputError(f"{named}: {error.strerror}"), words)


def usage_error(error: click.ClickException) -> IronlawError:
    """What click found wrong with the words of a command, as an error of the house."""
    if isinstance(error, click.NoSuchOption):
        return UnknownOptionError(error.format_message(), option=_option_of(error.option_name), nearest=error.possibilities or ())
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    group = context.command if context is not None else None
    if context is not None and isinstance(group, click.Group) and error.message.startswith("Missing command"):  # a verb without its action
        actions = ", ".join(group.list_commands(context))
        return QuestionError(f"{context.command_path} needs an action: {actions}; see {context.command_path} --help")
    option = parameter.name if isinstance(parameter, click.Parameter) else _option_of(getattr(error, "option_name", None))
    kind = MissingOptionError if isinstance(error, click.MissingParameter) else QuestionError
    return kind(error.format_message(), option=option)


def _option_of(flag: str | None) -> str | None:
    return flag.lstrip("-").replace("-", "_") if flag else None


def refuse(error: IronlawError, words: Sequence[str]) -> int:
    """Report an error in one line, with ``--json`` also as an object on standard output, and return its exit status."""
    if wants_json(words):
        from ironlaw.cli.output import json_text, print_line

        with contextlib.suppress(OSError, ValueError):
            print_line(json_text({"schema_version": SCHEMA_VERSION, "tool_version": __version__, "error": error.data()}))
            sys.stdout.flush()
    return report_error(str(error), error.exit_status)


def wants_json(words: Sequence[str]) -> bool:
    """True where the words of a command ask for JSON, also where they cannot be read otherwise.

    >>> wants_json(["estimate", "--json"]), wants_json(["money", "--format", "json"]), wants_json(["money", "--format=csv"])
    (True, True, False)
    """
    return "--json" in words or "--format=json" in words or ("--format", "json") in itertools.pairwise(words)


@contextlib.contextmanager
def patience(hint: str) -> Iterator[None]:
    """Show on a terminal how far long work is, or at least that it takes long, so that nobody waits without a word."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from threading import Timer

    from ironlaw.progress import watched

    line = ProgressLine(hint)
    said = Timer(PATIENCE, lambda: line.shown or report_error(f"still computing; {hint}", 0))
    said.daemon = True
    said.start()
    try:
        with watched(line.show):
            yield
    finally:
        said.cancel()


class ProgressLine:
    """A line of standard error that is written over: from the first second on, at most five times a second."""

    def __init__(self, hint: str) -> None:
        self.hint, self.shown, self.since, self.last = hint, False, time.monotonic(), 0.0

    def show(self, progress: Progress | None) -> None:
        """Write how far the work is; with None clear the line."""
        now = time.monotonic()
        with contextlib.suppress(OSError, ValueError):
            if progress is None:
                sys.stderr.write("\r\x1b[K" if self.shown else "")
                self.shown = False
            elif now - self.since > 1.0 and now - self.last > 0.2:
                self.last, self.shown = now, True
                sys.stderr.write(f"\r\x1b[K{progress} ({self.hint})")
            sys.stderr.flush()


def report_error(message: str, status: int) -> int:
    """Write an error as one line without control characters and return ``status``, also where standard error is closed."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"ironlaw: {one_line(message)}", err=True)
    return status


def run() -> None:
    """Entry point of the installed command."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no law multiplies matrices; numpy starts a spinning thread on every core for them
    gc.set_threshold(100_000)  # early collections free nothing: objects of an answer live as long as the process
    exit_at_once(main())


def exit_at_once(status: int) -> None:
    """End the process at once, without freeing its objects, which would take a tenth of a cold start."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # no stream, or a closed one
            stream.flush()
    os._exit(status)
