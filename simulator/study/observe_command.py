"""`python -m simulator observe EXPERIMENT.toml --url ... --model NAME`: send its requests to a real server."""
import argparse
import asyncio
import os
import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from simulator.assembly.requests import rows_to_send, vocabulary_of
from simulator.config.load import load_experiment
from simulator.core.argument_types import duration_s, whole_number
from simulator.domain import records
from simulator.errors import InputErrors, OutputError, faults_of
from simulator.results import coloured
from simulator.results.directory import check_free
from simulator.results.interrupts import Aborted, Interrupts
from simulator.study import observe_compare
from simulator.study.observe import files
from simulator.study.observe.campaign import (
    Found,
    Plan,
    Sent,
    Server,
    look,
    look_again,
    measured_rows,
    origin_of,
    send,
    server_file,
    unsent_rows,
    utc_text,
    warm,
    write_server,
)
from simulator.study.observe.client import check_installed
from simulator.study.observe.clock import Clock
from simulator.study.observe.orders import PATHS, Manner, outputs_of
from simulator.study.observe.progress import ObserveProgress
from simulator.study.observe.prompts import FIRST_ID, NUM_IDS
from simulator.study.observe.refusals import check_sendable, longer_than
from simulator.study.observe.self_test import self_test
from simulator.study.observe.summary import Measured, summary_of, summary_table, warnings_of
from simulator.study.observe_shares import send_in_shares
from simulator.study.workload_facts import times_ns
from simulator.workload.base import Workload
from simulator.workload.formats.native_csv_writer import write_trace
from simulator.workload.formats.tracev2_writer import write_tracev2

DONE, NOTHING_OK, SIGNAL = 0, 1, 128
PLAYS_PER_SLOT = 1024           # a client that waits 60 ms for each answer needs 1,000 a minute
KEY = "OPENAI_API_KEY"          # where vLLM's benchmark looks for it, too


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("experiment", metavar="EXPERIMENT.toml", help="its [workload] is sent")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the file; VALUE is TOML; repeatable")
    parser.add_argument("--url", type=_url, metavar="http://HOST:PORT",
                        help="of a server of OpenAI's interface")
    parser.add_argument("--model", metavar="NAME", help="name of the model on the server, to which requests are sent")
    parser.add_argument("--api", choices=tuple(PATHS), default="completions",
                        help="completions, the default: prompts as token ids; chat: as words that a probe counts")
    parser.add_argument("--out", metavar="DIR", help="where the files go; default: results/<name>-observed")
    parser.add_argument("--overwrite", action="store_true", help="replace the files of an earlier `observe`")
    parser.add_argument("--prewarm", type=duration_s, default=0.0, metavar="60s",
                        help="send requests of equal lengths and other texts for this time before; default: none")
    parser.add_argument("--max-in-flight", type=whole_number, metavar="N",
                        help="most requests at once; the waits of the others are reported separately")
    parser.add_argument("--timeout", type=duration_s, default=300.0, metavar="300",
                        help="in seconds, or as 5m: a request has failed then; default: 300")
    parser.add_argument("--no-stream", action="store_true", help="answers come whole: only E2EL is measured")
    parser.add_argument("--metrics-url", type=_page, metavar="URL", help="default: /metrics of the server")
    parser.add_argument("--processes", type=whole_number, default=1, metavar="N",
                        help="split requests over N processes; default: 1")
    parser.add_argument("--plays-per-slot", type=whole_number, default=PLAYS_PER_SLOT, metavar="N", help=(
        "of a closed loop that only a duration bounds: requests, or sessions, that are ready for each client; default: "
        f"{PLAYS_PER_SLOT}"))
    parser.add_argument("--trace-v2", action="store_true", help="write the measurements as BLIS's TraceV2, too")
    parser.add_argument("--token-ids", type=_ids, metavar="LOW:HIGH", help=(
        f"range of the ids of prompts, HIGH excluded; default: {FIRST_ID}:{FIRST_ID + NUM_IDS}, or up to the "
        "vocabulary of [model], where that is smaller"))
    parser.add_argument("--self-test", type=duration_s, default=2.0, metavar="2s",
                        help="how long to measure this client on loopback; 0: not at all; default: 2s")
    observe_compare.add_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no summary table")


def run(options: argparse.Namespace) -> int:
    """Send the requests, write the results; return the exit status.

    Raises
    ------
    InputErrors
        Faults found before any request is sent: in the experiment, requests that cannot be sent, a server that does not
        answer.
    """
    observe_compare.check_options(options)
    if options.metrics is not None or options.watch is not None:
        return observe_compare.run(options, os.environ.get(KEY) or None)
    check_installed()
    plan = _plan(options)
    if options.compare:
        observe_compare.subject_of(options)
    out = options.out or Path("results", f"{plan.experiment.name}-observed")
    out = check_free(out, options.overwrite, files.CONTENTS)
    if options.trace_v2:
        _check_tracev2(plan)
    found = asyncio.run(look(plan))
    plan = plan._replace(manner=found.manner)
    if options.compare:
        observe_compare.check_page(found.facts["metrics"]["before"], options.metrics_url or options.url)
    _tell(longer_than(plan.workload, found.max_model_len))
    try:
        return _measure(options, plan, found, out)
    except OSError as error:
        if error.errno in OutputError.ERRNOS:
            raise OutputError(out, error) from error
        raise InputErrors([f"{out}: cannot be written: {error.strerror}"]) from error


def _measure(options: argparse.Namespace, plan: Plan, found: Found, out: Path) -> int:
    """Send and write."""
    with Interrupts() as interrupts:
        def stops() -> bool:
            return interrupts.signal_number is not None
        parts: dict = {"self_test": self_test(options.self_test) if options.self_test else None}
        parts["prewarm"] = asyncio.run(warm(plan, stops)) if plan.prewarm_s else None
        if stops():             # no result so far could be kept
            raise Aborted(interrupts.signal_number)
        observe_compare.make_room(out)
        _write_trace(plan.workload, out)
        clock = Clock(origin_of(plan.workload))
        pages, keeper = observe_compare.keeper(options, out, plan.server.key)
        with keeper if options.compare else nullcontext():
            sent = _send(options, plan, clock, out, stops)
        facts = found.facts | {"metrics": found.facts["metrics"] | {"after": asyncio.run(look_again(plan))}}
    unsent = [] if sent.was_stopped else unsent_rows(plan.workload)
    names = files.names_of(plan.workload, plan.manner.api == "completions")
    files.in_order(out, names, unsent)
    seen = [each for each in sent.seen if each.row < measured_rows(plan.workload)]
    files.write_times(out, names.ids, seen, sent.first_ns)
    summary = summary_of(Measured(
        seen, len(unsent), outputs_of(plan.workload), not sent.was_stopped, plan.manner.streams))
    warnings = warnings_of(summary, parts["self_test"]) + _remarks(options, plan, sent)
    parts |= {"began_at": utc_text(clock.utc_ns + sent.first_ns), "warm_ups": len(sent.seen) - len(seen),
              "processes": options.processes, "summary": summary, "warnings": warnings}
    write_server(out, server_file(plan, facts, parts))
    if options.trace_v2:
        _write_tracev2(plan, seen, sent.first_ns, out)
    if not options.quiet:
        table = summary_table(f"{plan.experiment.name} at {plan.server.url}, {plan.manner.model}", summary)
        print(f"{coloured(table, sys.stdout)}\n\nresults in {out}")
    for warning in warnings:
        _tell(warning)
    if interrupts.signal_number is not None:
        return SIGNAL + interrupts.signal_number
    if options.compare:
        observe_compare.tell_of_pages(options, pages, _tell)
    return DONE if summary["requests"]["ok"] else NOTHING_OK


def _remarks(options: argparse.Namespace, plan: Plan, sent: Sent) -> list[str]:
    """Return remarks on the load."""
    found = []
    if sent.ran_dry:
        found.append(f"the load ran dry: more than {options.plays_per_slot:,} requests, or sessions, a slot are "
                     "needed; --plays-per-slot draws more")
    if getattr(plan.experiment.workload, "client_retry", None) is not None:
        found.append("workload.client_retry: each request was sent once, also where it failed")
    return found


def _send(options: argparse.Namespace, plan: Plan, clock: Clock, out: Path, stops: Callable[[], bool]) -> Sent:
    """Send the load, by one process or several."""
    if options.processes > 1:
        return send_in_shares(plan, clock.origin_ns, options.processes, out, stops)
    names = files.names_of(plan.workload, plan.manner.api == "completions")
    observed = files.ObservedFile(out / files.OBSERVED, names)
    try:
        total = None if plan.workload.is_open_ended else measured_rows(plan.workload)
        with ObserveProgress(total, options.quiet) as progress:
            def tell(seen, first_ns):
                observed.add(seen, first_ns)
                progress.show(seen.answer.status == "ok", (clock.now_ns() - first_ns) / 1e9)
            return send(plan, clock.origin_ns, tell, stops)
    finally:
        observed.close()


def _plan(options: argparse.Namespace) -> Plan:
    """Return the plan of the measurement, or refuse it."""
    experiment = load_experiment(options.experiment, options.overrides, "--set")
    with faults_of(options.experiment):
        workload = rows_to_send(experiment, options.plays_per_slot)
        check_sendable(workload, options.processes)
    if options.max_in_flight is not None and options.processes > 1:
        raise InputErrors([f"--max-in-flight {options.max_in_flight}: expected none with --processes "
                           f"{options.processes}: processes do not know how many requests others have in flight"])
    server = Server(options.url, os.environ.get(KEY) or None, KEY, options.metrics_url)
    manner = Manner(options.model, options.api, not options.no_stream, options.timeout)
    return Plan(experiment, workload, server, manner, options.token_ids or _usual_ids(vocabulary_of(experiment)),
                options.max_in_flight, options.prewarm)


def _usual_ids(vocabulary: int | None) -> range:
    """Return the default range of ids: of a small vocabulary, its second half at most."""
    end = min(FIRST_ID + NUM_IDS, vocabulary or FIRST_ID + NUM_IDS)
    return range(min(FIRST_ID, end // 2), end)


def _write_trace(workload: Workload, out: Path) -> None:
    """Write the workload as a native trace; one that only its end bounds cannot be written down."""
    if not workload.is_open_ended:
        with open(out / files.TRACE, "w", encoding="utf-8", newline="") as file:
            write_trace(workload, file, len(times_ns(workload)) > 0)


def _check_tracev2(plan: Plan) -> None:
    """Refuse prompts that TraceV2 cannot express, before any request is sent."""
    trial = plan.workload.untouched()
    trial.requests["arrival_ns"] = np.maximum(trial.requests["arrival_ns"], 0)
    try:
        write_tracev2(trial, os.devnull, os.devnull)
    except InputErrors as errors:
        raise InputErrors([fault.replace(os.devnull, "--trace-v2") for fault in errors.faults]) from None


def _write_tracev2(plan: Plan, seen: list, first_ns: int, out: Path) -> None:
    """Write the measurements as TraceV2."""
    plan.workload.requests["status"] = records.NOT_SENT
    for each in seen:
        files.note_in(plan.workload, each, first_ns)
    write_tracev2(plan.workload, out / files.TRACE_V2, out / files.TRACE_V2_HEADER)


def _tell(warning: str | None) -> None:
    if warning:
        print(coloured(f"warning: {warning}", sys.stderr), file=sys.stderr)


def _url(text: str) -> str:
    """Return the address of a server, without /v1."""
    return _page(text).rstrip("/").removesuffix("/v1").rstrip("/")


def _page(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise argparse.ArgumentTypeError(f"expected http://host:port, found {text!r}")
    if "@" in parts.netloc:
        raise argparse.ArgumentTypeError(f"expected no name or password in it; a key is read from {KEY}")
    return text


def _ids(text: str) -> range:
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise argparse.ArgumentTypeError(f"expected LOW:HIGH with LOW < HIGH, found {text!r}")
    return range(int(match[1]), int(match[2]))
