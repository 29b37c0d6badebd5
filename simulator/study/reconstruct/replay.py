"""A drawn demand as an experiment: its table, its trace, and a run of it."""
import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w

from simulator.api import Order, run_ordered
from simulator.assembly.context import block_tokens
from simulator.assembly.site import sites_of
from simulator.config.experiment import Experiment
from simulator.config.layers import Layers, Source
from simulator.config.load import plain_as_given, resolve
from simulator.errors import InputErrors, faults_of
from simulator.results.result import Result
from simulator.study.reconstruct.demand import Demand, Outage
from simulator.study.reconstruct.sharing import Sharing, drawn_heads, prompt_texts
from simulator.study.sweep.writing import write
from simulator.workload.formats.native_csv_writer import seconds_text

KEPT = ("output_knowledge",)    # of [workload]: it does not change the requests


class Shape(NamedTuple):
    """Facts that metrics do not give, drawn for each reconstruction.

    burstiness : coefficient of variation of gaps between arrivals within a window. sharing : of prompts.
    """

    burstiness: float
    sharing: Sharing


class Draw(NamedTuple):
    """A reconstruction.

    zero_s : beginning of its simulated time, seconds since 1970. cut : requests that max_model_len cut.
    """

    shape: Shape
    demand: Demand
    outages: tuple[Outage, ...]
    zero_s: float
    prompts: list[str] | None
    cut: int


class Site(NamedTuple):
    """The experiment that draws are laid into.

    table : of the whole experiment but [workload]. block : tokens of a KV block. most : tokens of a text.
    """

    table: dict[str, Any]
    replicas: int
    block: int
    most: int


def site_of(experiment: Experiment) -> Site:
    """Return the experiment without its requests.

    Raises
    ------
    InputErrors
        Its pools split prompts from outputs; or it does not fit.
    """
    pools = experiment.all_pools()
    if any(pool.role != "both" for pool in pools):
        raise InputErrors(['pools: expected role = "both" alone: each leg of a request is a request in the metrics of '
                           "its instance, and no metric joins them"])
    table = plain_as_given(experiment)
    table["workload"] = {key: table["workload"][key] for key in KEPT if key in table["workload"]}
    table["output"] = {key: value for key, value in table["output"].items() if key != "directory"}
    with faults_of(experiment.name):
        sites = sites_of(experiment)
    return Site(table, sum(pool.at_start for pool in pools),
                block_tokens(pools[0]), min(site.max_model_len for site in sites))


def laid_out(generator: np.random.Generator, shape: Shape, demand: Demand, outages: Sequence[Outage],
             grid: tuple[float, float], site: Site) -> Draw:
    """Return a reconstruction with samples at the instants of the scrapes.

    grid : instant of the first scrape, and the distance of scrapes.
    """
    first_s, step_s = grid
    early_s = max(first_s - float(demand.arrival_s[0]), 0.0) if len(demand.arrival_s) else 0.0
    prompts = np.clip(demand.prompt_tokens, 1, max(site.most - 1, 1))
    outputs = np.clip(demand.output_tokens, 1, np.maximum(site.most - prompts, 1))
    texts = None
    if shape.sharing.hit_share:
        texts = prompt_texts(prompts, *drawn_heads(generator, prompts, site.block, shape.sharing))
    return Draw(shape, Demand(demand.arrival_s, prompts, outputs), tuple(outages),
                first_s - math.ceil(early_s / step_s) * step_s, texts,
                int(np.count_nonzero((prompts < demand.prompt_tokens) | (outputs < demand.output_tokens))))


def trace_text(draw: Draw) -> str:
    """Return the requests as a native trace."""
    demand, stream = draw.demand, io.StringIO()
    times_ns = np.round((demand.arrival_s - draw.zero_s) * 1e9).astype(np.int64).clip(0)
    columns = {"arrived_at": [seconds_text(each) for each in times_ns.tolist()],
               "num_prefill_tokens": demand.prompt_tokens.tolist(), "num_decode_tokens": demand.output_tokens.tolist()}
    if draw.prompts is not None:
        columns["prompt"] = draw.prompts
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(zip(*columns.values(), strict=True))
    return stream.getvalue()


def table_of(site: Site, draw: Draw, trace: str, name: str) -> dict[str, Any]:
    """Return the experiment file of a draw.

    trace : path of its requests.
    """
    table = site.table | {"name": name}
    table["workload"] = site.table["workload"] | {
        "type": "trace", "format": "csv", "path": trace, "time_origin": "trace", "time_unit": "s"}
    if draw.outages:
        table["failures"] = [*site.table.get("failures", ()), *(_failure(site, draw, each) for each in draw.outages)]
    return table


def _failure(site: Site, draw: Draw, outage: Outage) -> dict[str, Any]:
    which = outage.instance if outage.instance < site.replicas else "any"
    return {"kind": "stop", "which": which, "at_s": round(max(outage.stop_s - draw.zero_s, 0.0), 9),
            "duration_s": round(outage.back_s - outage.stop_s, 9), "on_failure": "retry"}


def experiment_of(table: Mapping[str, Any], folder: Path) -> Experiment:
    """Return the experiment of a table with paths relative to a folder."""
    layers = Layers(Source("reconstruction", str(folder)))
    layers.merge(table, Source("reconstruction", str(folder)))
    return resolve(layers)


def from_first(draw: Draw) -> Draw:
    """Return a draw with the beginning of time at its first request."""
    return draw._replace(zero_s=float(draw.demand.arrival_s[0])) if len(draw.demand.arrival_s) else draw


def write_draw(site: Site, draw: Draw, folder: Path, names: tuple[str, str]) -> None:
    """Write the experiment of a draw and its trace into a folder.

    Time begins with its first request.

    names : of both files.
    """
    draw = from_first(draw)
    write(folder / names[1], trace_text(draw))
    head = "# Reconstructed from metrics; its assumptions are in reconstruction.json.\n"
    write(folder / names[0], head + tomli_w.dumps(table_of(site, draw, names[1], names[0].removesuffix(".toml"))))


def run_draw(site: Site, draw: Draw, folder: Path, step_s: float) -> Result:
    """Run a draw in memory, with samples at each scrape.

    folder : for its trace.
    """
    trace = folder / "candidate.csv"
    trace.write_text(trace_text(draw), encoding="utf-8")
    table = table_of(site, draw, str(trace), "candidate")
    table["output"] = table["output"] | {"replica_samples_s": step_s, "iterations": False}
    experiment = experiment_of(table, folder)
    return run_ordered(Order(experiment, None, False, True))
