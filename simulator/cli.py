"""The command line: what people type, what they read, and the exit status.

0 done; 2 the input is wrong; 1 a fault of the program; 128 + signal: interrupted, what was simulated so far is written.
"""
import argparse
import os
import sys
import time
from collections.abc import Sequence

from simulator.errors import InputErrors, faults_of

DONE, PROGRAM_FAULT, INPUT_FAULT = 0, 1, 2
SIGNAL = 128                    # + its number
SIGINT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks; return the exit status."""
    began_s = time.perf_counter()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments:
        _parser().print_usage(sys.stderr)
        return INPUT_FAULT
    if arguments[0] not in (*COMMANDS, "-h", "--help"):
        arguments.insert(0, "run")
    options = _parser().parse_args(arguments, argparse.Namespace(began_s=began_s))
    try:
        status = COMMANDS[options.command](options)
        sys.stdout.flush()
        return status
    except InputErrors as errors:
        print(errors, file=sys.stderr)
        return INPUT_FAULT
    except KeyboardInterrupt as interrupt:
        return SIGNAL + getattr(interrupt, "signal_number", SIGINT)
    except BrokenPipeError:     # the reader, `head` for instance, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        return _report(error)


def _run(options: argparse.Namespace) -> int:
    from simulator.config.load import load_experiment
    experiment = load_experiment(options.experiment, options.overrides)
    from simulator.api import run_experiment  # NumPy and h5py: after the input is known to be good
    from simulator.results import summary_table
    out = options.out or experiment.output.directory or os.path.join("results", experiment.name)
    with faults_of(options.experiment):
        result = run_experiment(experiment, out, options.overwrite, options.quiet, options.began_s)
    if not options.quiet:
        print(f"{summary_table(result.summary)}\n\nresults in {out}")
    return DONE if result.interrupted_by is None else SIGNAL + result.interrupted_by


def _validate(options: argparse.Namespace) -> int:
    from simulator.config.load import load_experiment, resolved_toml
    experiment = load_experiment(options.experiment, options.overrides)
    from simulator.assemble import prepare  # NumPy and the engine: after the file is known to be good
    with faults_of(options.experiment):
        prepare(experiment)
    print(resolved_toml(experiment), end="")
    return DONE


def _list(options: argparse.Namespace) -> int:
    from simulator.config.describe import list_text
    print(list_text(" ".join(options.kind) or None))
    return DONE


def _describe(options: argparse.Namespace) -> int:
    from simulator.config.describe import describe_text
    print(describe_text(" ".join(options.kind), options.name))
    return DONE


def _schema(options: argparse.Namespace) -> int:
    import json

    from simulator.config.json_schema import experiment_schema
    print(json.dumps(experiment_schema(), indent=2, ensure_ascii=False))
    return DONE


COMMANDS = {"run": _run, "validate": _validate, "list": _list, "describe": _describe, "schema": _schema}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="simulator", description="Simulate LLM inference serving. `simulator FILE` is `simulator run FILE`.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    run = commands.add_parser("run", help="run one experiment", allow_abbrev=False)
    _add_experiment(run)
    run.add_argument("--out", metavar="DIR", help="results directory; default: [output].directory, else results/<name>")
    run.add_argument("--overwrite", action="store_true", help="replace results that are complete already")
    run.add_argument("--quiet", action="store_true", help="no progress bar, no summary table")

    validate = commands.add_parser(
        "validate", help="check an experiment and print it with every default filled in", allow_abbrev=False)
    _add_experiment(validate)

    list_ = commands.add_parser("list", help="what can be chosen by name")
    list_.add_argument("kind", nargs="*", metavar="KIND", help="models, hardware, nodes, schedulers, routers, ...")

    describe = commands.add_parser("describe", help="one entry: its keys, types, defaults, units, source")
    describe.add_argument("kind", nargs="+", metavar="KIND", help="as `list` shows them")
    describe.add_argument("name", metavar="NAME")

    commands.add_parser("schema", help="JSON Schema of the experiment file, for editors")
    return parser


def _add_experiment(command: argparse.ArgumentParser) -> None:
    command.add_argument("experiment", metavar="EXPERIMENT.toml")
    command.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                         help="override one value of the file; VALUE is TOML; repeatable")


def _report(error: Exception) -> int:
    if os.environ.get("SIM_TRACEBACK") == "1":
        import traceback
        traceback.print_exception(error)
    message = " ".join(str(error).split())
    print(f"simulator: a fault of the program: {type(error).__name__}: {message}\n"
          "Please report it as CONTRIBUTING.md says, with the experiment file and what SIM_TRACEBACK=1 shows.",
          file=sys.stderr)
    return PROGRAM_FAULT
