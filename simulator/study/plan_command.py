"""`python -m simulator plan MODEL --gpu NAME`: the largest rate of some GPUs, or the fewest GPUs for a rate."""
import argparse
import json
import sys
from pathlib import Path

from simulator import registry
from simulator.errors import InputErrors, did_you_mean
from simulator.study.planning.answer import content_of, text_of
from simulator.study.planning.plan import Plan, Planner
from simulator.study.planning.question import ENGINES, VLLM, Question, question_of
from simulator.study.planning.running import Runner
from simulator.study.planning.server import server_of
from simulator.study.sweep.machine import usable_cores
from simulator.study.telling.said import Said
from simulator.study.telling.screen import show
from simulator.study.tuning.at_load import FEASIBLE
from simulator.study.watch import Watch

DONE, SOME_FAILED, NOTHING, SIGNAL = 0, 1, 3, 128
MISSED = ("infeasible", "refused")
ROUTERS = ("round_robin", "least_loaded", "power_of_two", "random")     # of --routers without names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.set_defaults(texts=("source",))
    parser.add_argument("model", metavar="MODEL", nargs="?", help=(
        "a name of models/, a repository on the hub, or a folder with config.json; default: that of --from"))
    parser.add_argument("--gpu", required=True, metavar="NAME", help=(
        "accelerator, a name of hardware/ or its first parts: h100"))
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs that there are; default: 8, or those of --from")
    parser.add_argument("--input", type=int, required=True, metavar="TOKENS", help="tokens of each prompt")
    parser.add_argument("--output", type=int, required=True, metavar="TOKENS", help="tokens of each answer")
    parser.add_argument("--rate", type=float, metavar="R", help=(
        "requests a second, for the fewest GPUs; default: the largest rate of all GPUs is asked"))
    parser.add_argument("--ttft-p99", type=float, metavar="MS", help="bound of the time to the first token")
    parser.add_argument("--tpot-p99", type=float, metavar="MS", help="bound of the time per further token")
    parser.add_argument("--slo", action="append", default=[], metavar="KEY=LIMIT", help=(
        "another bound, as of `capacity`: e2el_ms.p50=9000; repeatable"))
    parser.add_argument("--model-confidence", type=float, metavar="SHARE", help=(
        "keep the bounds with this confidence over the latency model, 0.9: on a server as slow, beside its prediction, "
        "as that share of the deployments left out"))
    parser.add_argument("--engine", choices=ENGINES, help="default: vllm, or that of --from")
    parser.add_argument("--engine-version", metavar="V", help="default: the newest that is modelled")
    parser.add_argument("--max-model-len", type=int, metavar="TOKENS", help=(
        "longest text of the server; default: as long as the requests"))
    parser.add_argument("--tensor-parallel", type=_sizes, metavar="N,...", help="sizes that are tried; default: all")
    parser.add_argument("--no-split", action="store_true", help="no separate replicas for prefill and decode")
    parser.add_argument("--routers", nargs="?", const=ROUTERS, type=_routers, metavar="NAME,...", help=(
        f"compare routers in front of the best deployment; without names {', '.join(ROUTERS)}"))
    parser.add_argument("--from", dest="source", metavar="SOURCE", help=(
        "a server's command line or file, as of `from`: what it holds, and whether there is better"))
    parser.add_argument("--prices", metavar="PRICE|FILE.toml", help=(
        "price of a GPU-hour, or a file with [prices], for costs"))
    parser.add_argument("--config", metavar="FOLDER", help="folder with the model's config.json, in place of its name")
    parser.add_argument("--out", metavar="DIR", help=(
        "folder of the experiment, its studies and their results; default: results/plan-..."))
    parser.add_argument("--overwrite", action="store_true", help="replace another plan in DIR, with its results")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(options: argparse.Namespace) -> int:
    """Search, write the studies, print the answer; return the exit status.

    Raises
    ------
    InputErrors
        Faults of the question, all at once; a model that fits nowhere.
    """
    if options.model is None and options.source is None:
        raise InputErrors(["plan: give a MODEL, or --from a server's command line"])
    server = None if options.source is None else server_of(options)
    options.gpus, options.engine = 8 if options.gpus is None else options.gpus, options.engine or VLLM
    question = question_of(options)
    directory = Path(options.out or Path("results", _name(question))).absolute()
    watch = Watch(None)
    with watch.interrupts:
        planner = Planner(question, directory, Runner(usable_cores(), watch.is_over), options.overwrite, server)
        plan = planner.plan(options.tensor_parallel, not options.no_split, options.routers or ())
    said = Said()
    for study in plan.all_studies:
        said.merge(study.ended.said)
    print(json.dumps(content_of(plan, said), indent=2, allow_nan=False) if options.json else text_of(plan))
    show(print, said, plan.studies[0].ended.question.study.base, options.json)
    number = watch.interrupts.signal_number
    if number is not None:
        print(f"stopped; runs so far are in {directory}, run again to go on", file=sys.stderr)
        return SIGNAL + number
    return _status(plan)


def _status(plan: Plan) -> int:
    results = [each for study in plan.all_studies for each in study.ended.findings.results]
    failed = [each for each in results if each.status not in (FEASIBLE, *MISSED)]
    for each in failed[:3]:
        print(f"{each.status}: {each.candidate.layout}: {each.why}", file=sys.stderr)
    if failed:
        return SOME_FAILED
    return DONE if plan.holds else NOTHING


def _name(question: Question) -> str:
    requests = question.requests
    rate = "" if requests.rate is None else f"-{requests.rate:g}"
    return f"plan-{question.name}-{question.gpus}-{requests.prompt}-{requests.output}{rate}"


def _sizes(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise argparse.ArgumentTypeError(f"expected sizes as 1,2,4; found {text!r}")
    return tuple(dict.fromkeys(map(int, parts)))


def _routers(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    known = registry.KINDS["router"].entries
    if wrong := [each for each in found if each not in known]:
        raise InputErrors([f'--routers: no router "{each}"{did_you_mean(each, known)}' for each in wrong])
    return found
