"""The command line: arguments, output and the exit status.

0: done; 2: the input has faults, or the checkout is not built; 1: a fault of the program, also a run that was ended
because nothing could happen in it any more: its results are written, marked incomplete, with a diagnosis;
128 + signal: interrupted, the results so far are written.
"""
import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module

from simulator import __version__, registry
from simulator.core.argument_types import whole_number
from simulator.errors import InputErrors, OutputError, faults_of, nearest
from simulator.not_built import NotBuilt

DONE, PROGRAM_FAULT, INPUT_FAULT = 0, 1, 2
SIGNAL = 128                    # + its number
SIGINT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute the command line; return the exit status."""
    began_s = time.perf_counter()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    _replace_closed_streams()
    _print_everything()
    if not arguments:
        parser_of().print_usage(sys.stderr)
        return INPUT_FAULT
    if arguments[0] not in (*COMMANDS, *STUDIES, "-h", "--help", "--version"):
        if _is_mistyped(arguments[0]):
            close = nearest(arguments[0], [*COMMANDS, *STUDIES]) or "; --help lists the commands"
            print(f'simulator: no command and no file "{arguments[0]}"{close}', file=sys.stderr)
            return INPUT_FAULT
        arguments.insert(0, "run")
    try:
        options, unknown = parser_of(arguments[0]).parse_known_args(arguments, argparse.Namespace(began_s=began_s))
        if unknown:                             # else argparse shows the usage of no command
            options.refuse(f"unrecognized arguments: {' '.join(unknown)}")
        _refuse_names(options)
        run = COMMANDS.get(options.command) or _study(options.command).run
        status = run(options)
        sys.stdout.flush()
        return status
    except InputErrors as errors:
        print(errors, file=sys.stderr)
        return INPUT_FAULT
    except NotBuilt as error:
        print(f"simulator: {error}", file=sys.stderr)
        return INPUT_FAULT
    except KeyboardInterrupt as interrupt:
        return SIGNAL + getattr(interrupt, "signal_number", SIGINT)
    except BrokenPipeError:     # the reader, `head` for instance, has closed the pipe
        _discard_output()
        return DONE
    except (Exception, SystemExit) as error:    # a user's class may raise SystemExit
        return _report(error)


def _refuse_names(options: argparse.Namespace) -> None:
    """Refuse names of files and folders with line breaks, and an empty --out, of an unset variable of a shell.

    A setting may contain line breaks: it is TOML.
    """
    from simulator.core.paths import fault_of_name
    if getattr(options, "out", None) == "":
        raise InputErrors(["--out: expected a path, found an empty text; leave the option out for the default"])
    given = [value for name, value in vars(options).items() if isinstance(value, str) and "\0" not in value
             and name not in getattr(options, "texts", ())]         # commands, which may have several lines
    if faults := [fault for value in given if (fault := fault_of_name(value))]:
        raise InputErrors(faults)


def _replace_closed_streams() -> None:
    """Replace streams closed by `>&-`; files opened later must not get their descriptor numbers."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))     # noqa: SIM115 -- until the process ends


def _print_everything() -> None:
    """Print characters that a stream cannot encode as escapes, and lines at once: in order in a shared pipe."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            escaped = "backslashreplace" if stream.errors in ("strict", "surrogateescape") else None
            stream.reconfigure(errors=escaped, line_buffering=True)


def _discard_output() -> None:
    """Discard unprinted output, on which Python would fail at exit."""
    with suppress(OSError):     # a stream of Python's own, without a descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_mistyped(word: str) -> bool:
    """Return whether the first word can be neither an option nor an experiment."""
    return not (word.startswith("-") or os.sep in word or word.endswith(".toml") or os.path.exists(word))


def _run(options: argparse.Namespace) -> int:
    from simulator.config.load import load_experiment
    experiment = load_experiment(options.experiment, options.overrides, "--set")
    from datetime import date

    from simulator.api import run_experiment  # NumPy and h5py: after the input is known to be good
    from simulator.results import aged, coloured, notes, summary_table
    out = options.out or experiment.output.directory or os.path.join("results", experiment.name)
    if options.report:
        _study("report").check_installed()      # before the run, not after it
    with faults_of(options.experiment), _builder(options) as build:
        result = run_experiment(experiment, out, options.overwrite, options.quiet, options.began_s, options.threads,
                                build)
    if not options.quiet:
        print(f"{coloured(summary_table(result.summary), sys.stdout)}\n{_kv_report(experiment)}\nresults in {out}")
    if options.report:
        page = _study("report").write_page(out, options.quiet)
        if not options.quiet:
            print(f"report in {page}")
    for note in [*notes(result.summary), *aged(result.summary, date.today())]:
        print(coloured(f"warning: {note}", sys.stderr), file=sys.stderr)
    if result.stands_still:
        return PROGRAM_FAULT
    return DONE if result.interrupted_by is None else SIGNAL + result.interrupted_by


def _kv_report(experiment) -> str:
    """Return the lines that the engines print of their KV caches when they start, each behind its pool."""
    from simulator.assembly.site import sites_of
    from simulator.study.telling.screen import lines_of
    lines = [f"{site.prefix.removeprefix('pools.').rstrip('.')}: {line}".removeprefix(": ")
             for site in sites_of(experiment) for line in site.kv_lines]
    return "".join(f"\n{lines_of(line)}" for line in lines) + "\n" * bool(lines)


@contextmanager
def _builder(options: argparse.Namespace) -> Iterator[Callable | None]:
    """Yield the builder of a run in parts on the workers of --dask; None without --dask."""
    if options.dask is None:
        if options.parts is not None:
            raise InputErrors(["--parts: needs --dask, the place where parts are simulated"])
        yield None
        return
    from simulator.study.distributed.dask_client import client_of
    with client_of(options.dask, _tell) as client:
        from simulator.study.distributed.giant_run import InParts  # an extra; installed if there is a client
        yield InParts(client, options.parts or 0, _tell)


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


def _validate(options: argparse.Namespace) -> int:
    from simulator.config.load import NoExperiment, commented_toml, load_experiment
    try:
        experiment = load_experiment(options.experiment, options.overrides, "--set")
    except NoExperiment as other:
        print(_study(other.kind).validated(options.experiment, options.overrides), end="")
        return DONE
    from simulator.assembly.assemble import build, prepare  # NumPy and the engine: after the file is known to be good
    from simulator.results.memory import NO_SINK
    with faults_of(options.experiment):
        prepared = prepare(experiment)
        build(prepared, NO_SINK)                # policies read their files
    for site in prepared.sites:
        for key in ("max_model_len", "num_gpu_blocks"):     # comments: they are no part of the experiment
            if getattr(site.pool.engine, key) is None:
                print(f"# derived: {site.prefix}engine.{key} = {getattr(site, key)}")
        for line in site.explain():
            print(f"#   {line}")
    print(commented_toml(experiment), end="")
    return DONE


def _list(options: argparse.Namespace) -> int:
    from simulator.config.describe import list_text
    print(list_text(" ".join(options.kind) or None, options.like))
    return DONE


def _describe(options: argparse.Namespace) -> int:
    from simulator.config.describe import describe_text
    from simulator.config.huggingface.reader import read_config
    print(describe_text(" ".join(options.kind), options.name, read_config))
    return DONE


def _schema(options: argparse.Namespace) -> int:
    import json

    from simulator.config.json_schema import experiment_schema
    print(json.dumps(experiment_schema(), indent=2, ensure_ascii=False))
    return DONE


def _example(options: argparse.Namespace) -> int:
    from simulator.core.paths import shell_word
    from simulator.shell import examples
    if options.example is None:
        if options.to is not None:
            raise InputErrors(["--to: needs the NAME of an example; `simulator example` lists them"])
        print(examples.listing())
        return DONE
    written = examples.write(options.example, options.to or "")
    print("\n".join(map(str, written)))
    for file in examples.lacking(options.example):
        print(f"{written[0]} reads {file}, which does not come along: its first lines say where it is")
    print(f"\npython -m simulator {examples.command(options.example)} {shell_word(written[0])}")
    return DONE


def _completion(options: argparse.Namespace) -> int:
    from simulator.shell.completion import script
    print(script(parser_of(*STUDIES), options.shell))
    return DONE


COMMANDS = {"run": _run, "validate": _validate, "list": _list, "describe": _describe, "example": _example,
            "schema": _schema, "completion": _completion}
# Command -> module of simulator.study, with `add_arguments(parser)` and `run(options) -> status`, and its help text.
STUDIES = {
    "compare": ("compare_command", "one workload under several experiments, side by side"),
    "diff-versions": ("diff_versions_command", "one experiment under two versions of vLLM: what changes, and why"),
    "bench": ("bench_command", "latency, throughput, serve: the benchmarks of vLLM, their flags and keys, simulated"),
    "sweep": ("sweep_command", "every point of a study, kept as it ends, resumed where it stopped"),
    "study": ("study_command", "a study that is there: status, merge, table, check"),
    "workload": ("workload_command", "the requests of an experiment, in numbers and as a native trace"),
    "observe": ("observe_command", "send the requests of an experiment to a real server, and measure it"),
    "reconstruct": ("reconstruct_command", "the demand behind a server's metrics, as an experiment that replays it"),
    "serve": ("serve_command", "the simulated fleet as a live server of OpenAI's interface"),
    "explore": ("explore_command", "a page in the browser: controls of an experiment, and its answers as they move"),
    "watch": ("watch_command", "the progress of a run, a study or a live fleet as a page"),
    "cache-bound": ("cache_bound_command", "hits of the prefix cache beside the most that any eviction allows"),
    "predict": ("predict_command", "how long one iteration takes, operator by operator"),
    "capacity": ("capacity_command", "the largest load within bounds, or the fewest replicas for a load"),
    "fit": ("fit_command", "which layouts of a model fit into memory, and how much KV cache each leaves"),
    "plan": ("plan_command", "the largest rate of some GPUs within bounds, or the fewest GPUs for a rate, in one line"),
    "support": ("support_command", "what is measured for a model and an accelerator, by which tables; errors seen"),
    "tune": ("tune_command", "which deployment is best: candidates, pruned, simulated, ranked, and written"),
    "score": ("score_command", "predictions compared with measurements on real machines"),
    "calibrate": ("calibrate_command", "fit an experiment to measurements of a real server, and report its errors"),
    "import": ("import_command", "measurements of load generators and engines, as observed.csv and steps.csv"),
    "train": ("train_command", "train and cache the tables of the latency backend `forest`"),
    "report": ("report_command", "results as one page of charts, as pictures, or as plots in the terminal"),
    "export": ("export_command", "results in the files of Vidur, SimAI or BLIS, or as CSV or Parquet"),
    "from": ("from_command", "the experiment of a server: its command line, or a file that starts it"),
    "collective": ("collective_command", "time the collectives of a training workload, layer by layer"),
    "profile-layers": ("profile_layers", "write tables of per-layer times for the latency backend `aicb`"),
    "profile-gpu": ("profile_gpu_command", "measure a model's operators on this machine, for the backend `operators`"),
    "profile-operators": ("profile_operators", "write profiles of operators for the latency backend `forest`"),
}


def _study(command: str):
    return import_module(f"simulator.study.{STUDIES[command][0]}")


def parser_of(*chosen: str) -> argparse.ArgumentParser:
    """Return the parser; only the modules of the `chosen` studies are imported."""
    parser = argparse.ArgumentParser(
        prog="simulator", description="Simulate LLM inference serving. `simulator FILE` is `simulator run FILE`.")
    parser.add_argument("--version", action="version", version=f"simulator {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    _add_run(commands)
    validate = commands.add_parser(
        "validate", allow_abbrev=False, help=(
            "check an experiment, a study or a comparison without a run, and print it with every default filled in"))
    _add_experiment(validate)

    list_ = commands.add_parser("list", help="list the names that can be chosen")
    list_.add_argument("kind", nargs="*", metavar="KIND", help="models, hardware, schedulers, routers, keys, ...")
    list_.add_argument("--like", default="", metavar="TEXT", help="those with this text in their name, of any case")

    describe = commands.add_parser("describe", help="show one entry: its keys, types, defaults, units, source")
    describe.add_argument("kind", nargs="+", metavar="KIND", help="as `list` shows them")
    describe.add_argument("name", metavar="NAME", help="as `list KIND` shows it")

    example = commands.add_parser("example", help="list the included experiments, or copy one")
    example.add_argument("example", nargs="?", metavar="NAME", help="name of an example; default: list all examples")
    example.add_argument("--to", metavar="FOLDER", help="folder for the example and its files; default: here")

    commands.add_parser("schema", help="JSON Schema of the experiment file, for editors")

    completion = commands.add_parser("completion", help="print the completion script for a shell")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"),
                            help="shell to complete in, e.g. eval \"$(simulator completion bash)\"")

    for name, (_, purpose) in STUDIES.items():
        study = commands.add_parser(name, help=purpose, description=purpose, allow_abbrev=False)
        if name in chosen:
            _study(name).add_arguments(study)
    for command in commands.choices.values():
        command.set_defaults(refuse=command.error)
    return parser


def _add_run(commands) -> None:
    run = commands.add_parser("run", help="run one experiment", allow_abbrev=False)
    _add_experiment(run)
    run.add_argument("--out", metavar="DIR", help="results directory; default: [output].directory, else results/<name>")
    run.add_argument("--overwrite", action="store_true", help="replace complete results")
    run.add_argument("--quiet", action="store_true", help="no progress bar, no summary table")
    run.add_argument("--report", action="store_true", help="also write report.html into the results (extra `report`)")
    run.add_argument("--threads", type=whole_number, metavar="N",
                     help="number of threads to simulate independent replicas; default: all cores; the results do "
                          "not depend on it")
    run.add_argument("--dask", metavar="PLACE", help=(
        "simulate independent replicas on Dask workers (extra `dask`): local, a scheduler's address as "
        "tcp://host:8786, or its JSON file; the results do not depend on it"))
    run.add_argument("--parts", type=whole_number, metavar="N", help="with --dask: maximum number of parts")


def _add_experiment(command: argparse.ArgumentParser) -> None:
    command.add_argument("experiment", metavar="EXPERIMENT.toml", help="the experiment to simulate")
    command.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                         help="override one value of the file; VALUE is TOML; repeatable")


def _report(error: BaseException) -> int:
    if os.environ.get("SIM_TRACEBACK") == "1":
        import traceback
        traceback.print_exception(error)
    if isinstance(error, OSError) and error.errno in OutputError.ERRNOS:
        _discard_output()
        fault = error if isinstance(error, OutputError) else OutputError(error.filename or "output", error)
        print(fault, file=sys.stderr)
        return PROGRAM_FAULT
    if isinstance(error, OutputError):
        print(f"{error}; give another path", file=sys.stderr)
        return INPUT_FAULT
    if isinstance(error, OSError) and error.errno in OutputError.OF_PATHS and error.filename:
        print(f"{error.filename}: cannot be read or written: {error.strerror}", file=sys.stderr)
        return INPUT_FAULT
    if blamed := registry.blame(error):
        print(f"simulator: {blamed}\nSIM_TRACEBACK=1 shows the way there.", file=sys.stderr)
        return INPUT_FAULT
    if isinstance(error, SystemExit):
        raise error
    message = "; ".join(filter(None, [" ".join(str(error).split()), *getattr(error, "__notes__", ())]))
    if isinstance(error, MemoryError):
        print(f"simulator: not enough memory{f': {message}' if message else ''}; ask for fewer requests, replicas or "
              "KV blocks, or for less output", file=sys.stderr)
        return INPUT_FAULT
    print(f"simulator: a fault of the program: {type(error).__name__}: {message}\n"
          "Please report it as CONTRIBUTING.md says, with the experiment file and what SIM_TRACEBACK=1 shows.",
          file=sys.stderr)
    return PROGRAM_FAULT
