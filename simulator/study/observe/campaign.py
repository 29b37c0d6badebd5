"""One measurement, from the first question to the server to the last file."""
import asyncio
import gc
import json
import os
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

import simulator
from simulator.assembly.requests import live_source
from simulator.config.experiment import Experiment
from simulator.domain import records
from simulator.results.provenance import machine
from simulator.study.observe import files
from simulator.study.observe.client import Client
from simulator.study.observe.clock import Clock
from simulator.study.observe.orders import Manner, Orders
from simulator.study.observe.prompts import Prompts
from simulator.study.observe.sender import Load, Seen, Sender, waiting_rows
from simulator.study.observe.server_facts import check_served, metrics_of, served_models, version_of
from simulator.study.observe.warm_up import pace_of, prewarm
from simulator.study.server_metrics.text_format import flags_in
from simulator.workload.base import Workload

LEAD_NS = 100_000_000           # from the start of the clock to the first request


class Server(NamedTuple):
    """The address of the server and its key.

    key : sent with requests; None: none. key_name : environment variable of the key. metrics_url : None: its /metrics.
    """

    url: str
    key: str | None
    key_name: str
    metrics_url: str | None


class Plan(NamedTuple):
    """The plan of a measurement.

    experiment, workload : the file, and its requests. manner : how they are sent, without the pace of words.
    ids : range of token ids. most : requests in flight; None: no limit. prewarm_s : 0: no warm-up.
    """

    experiment: Experiment
    workload: Workload
    server: Server
    manner: Manner
    ids: range
    most: int | None
    prewarm_s: float


class Found(NamedTuple):
    """Facts found before the load.

    manner : with the pace of words. facts : for server.json. max_model_len : None: the server does not say.
    """

    manner: Manner
    facts: dict
    max_model_len: int | None


async def look(plan: Plan) -> Found:
    """Query the models, version and metrics of a server, before anything else is sent.

    Raises
    ------
    InputErrors
        The server does not answer; it does not serve a requested model.
    """
    server, manner = plan.server, plan.manner
    async with Client(server.url, Clock(), server.key) as client:
        models = await served_models(client, server.url, server.key_name)
        names = {str(name): "workload: adapter" for name in plan.workload.labels.get("adapter", ())}
        check_served(models, names | {manner.model: "--model"}, server.url)
        version, metrics = await version_of(client), await metrics_of(client, server.metrics_url)
        if manner.api == "chat":
            prompts = Prompts(plan.workload, plan.experiment.seed, plan.ids, "/probe")
            manner = manner._replace(pace=await pace_of(client, manner.model, prompts, manner.timeout_s))
    longest = models[manner.model].max_model_len
    facts = {"version": version, "model": manner.model, "max_model_len": longest, "flags": flags_in(metrics),
             "metrics": {"before": metrics}}
    if manner.pace is not None:
        facts["words"] = manner.pace._asdict()
    return Found(manner, facts, longest)


async def warm(plan: Plan, stops: Callable[[], bool]) -> dict:
    """Send warm-up requests that are not measured, with prompts of their own."""
    clock, prompts = Clock(), Prompts(plan.workload, plan.experiment.seed, plan.ids, "/prewarm")
    async with Client(plan.server.url, clock, plan.server.key) as client:
        orders = Orders(plan.workload, prompts, plan.manner)
        return await prewarm(client, clock, plan.workload, orders, plan.prewarm_s, stops)


async def look_again(plan: Plan) -> dict[str, float] | str:
    """Return the server's metrics after the load."""
    async with Client(plan.server.url, Clock(), plan.server.key) as client:
        return await metrics_of(client, plan.server.metrics_url)


class Sent(NamedTuple):
    """The results of a load.

    seen : requests that have ended, warm-ups included. was_stopped : before all were sent. first_ns : planned time of
    the first measured request. ran_dry : a closed loop that only its end bounds had too few requests.
    """

    seen: list[Seen]
    was_stopped: bool
    first_ns: int
    ran_dry: bool = False


def origin_of(workload: Workload) -> int:
    """Return an origin for the clock such that the first request is due soon.

    In the units of `time.perf_counter_ns`.
    """
    first_ns = live_source(workload.untouched()).next_ns or 0
    return time.perf_counter_ns() + LEAD_NS - first_ns


def send(plan: Plan, origin_ns: int, tell: Callable[[Seen, int], None], stops: Callable[[], bool],
         share: tuple[int, int] = (0, 1)) -> Sent:
    """Send the load, or a share of it; its workload is written to.

    tell : callback, called with each measured request that has ended, and the planned time of the first one.
    """
    seen: list[Seen] = []
    workload, num_measured = plan.workload, measured_rows(plan.workload)

    def note(each: Seen, first_ns: int) -> None:
        each.answer.text, each.answer.token_ids = [], []
        seen.append(each)
        if each.row < num_measured:
            tell(each, first_ns)

    async def run() -> tuple[bool, int, bool]:
        clock, source, horizon_s = Clock(origin_ns), live_source(workload), plan.experiment.horizon_s
        orders = Orders(workload, Prompts(workload, plan.experiment.seed, plan.ids), plan.manner)
        load = Load(workload, source, orders, num_measured, plan.most, share,
                    None if np.isinf(horizon_s) else round(horizon_s * 1e9), waiting_rows(workload))
        async with Client(plan.server.url, clock, plan.server.key) as client:
            sender = Sender(load, client, clock, note, stops)
            await sender.run()
        return sender.was_stopped, sender.first_ns or 0, source.ran_dry()

    open_many()
    is_frozen = gc.get_freeze_count() > 0       # by the caller: these objects stay frozen
    gc.collect()
    gc.freeze()                 # existing objects are not scanned by the collector again and again
    try:
        return Sent(seen, *asyncio.run(run()))
    finally:
        if not is_frozen:
            gc.unfreeze()


def open_many() -> None:
    """Raise this process's limit of open connections as far as allowed."""
    with suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def measured_rows(workload: Workload) -> int:
    """Return the number of measured rows; warm-ups are the last rows."""
    return len(workload) - workload.num_warmups


def unsent_rows(workload: Workload) -> list[int]:
    """Return measured rows that will never be sent.

    A request that they wait for failed, or the load has ended. Unused plays of a load that only its end bounds are
    left out.
    """
    unsent = workload.requests["status"] == records.NOT_SENT
    if workload.is_open_ended:
        begins = workload.script.play_begins
        sizes = np.diff(np.arange(len(workload) + 1) if begins is None else begins)
        play_of = np.repeat(np.arange(len(sizes)), sizes)
        unsent &= np.bincount(play_of, ~unsent)[play_of] > 0
    return np.flatnonzero(unsent[:measured_rows(workload)]).tolist()


def server_file(plan: Plan, facts: dict, parts: dict) -> dict:
    """Return server.json. The key is not in it.

    parts : further entries: self_test, prewarm, summary, warnings.
    """
    manner = plan.manner
    sent = {"api": manner.api, "streams": manner.streams, "timeout_s": manner.timeout_s, "max_in_flight": plan.most,
            "token_ids": [plan.ids.start, plan.ids.stop] if manner.api == "completions" else None}
    return {"schema": 1, "simulator_version": simulator.__version__, "experiment": plan.experiment.name,
            "seed": plan.experiment.seed, "url": plan.server.url, **facts, "sent": sent, "client": machine(), **parts}


def utc_text(time_ns: int) -> str:
    """Return an instant in ns since 1970 as text, to the microsecond."""
    return datetime.fromtimestamp(time_ns // 1000 / 1e6, UTC).isoformat(timespec="microseconds")


def write_server(directory: Path, content: dict) -> None:
    """Write server.json, whole or not at all."""
    path = directory / files.SERVER
    staged = path.with_name(f".{path.name}.{os.getpid()}.partial")
    staged.write_text(json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8",
                      newline="\n")
    os.replace(staged, path)
