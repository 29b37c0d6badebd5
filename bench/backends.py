"""Latency backends and collective models for Llama-3.1-8B on H100s.

Profiles are made up, operator tables are read from their folder.
"""
import os
import stat
from pathlib import Path

import numpy as np
from limit import Unavailable

from simulator.collective.busbw.model import Busbw
from simulator.collective.external.model import External
from simulator.collective.flow.model import Flow
from simulator.collective.table.model import Table
from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model, load_node
from simulator.domain.parallelism import Parallelism
from simulator.latency.aicb.model import Aicb
from simulator.latency.blis.blackbox import Blackbox
from simulator.latency.blis.crossmodel import Crossmodel
from simulator.latency.blis.step_roofline import StepRoofline
from simulator.latency.blis.trained_physics import TrainedPhysics
from simulator.latency.forest.model import Forest, Reading
from simulator.latency.forest.profiles import ROUNDED_OPERATORS
from simulator.latency.forest.tables import MEASURED, ForestTables
from simulator.latency.linear import Linear
from simulator.latency.operators.model import Operators
from simulator.latency.roofline.model import Roofline

OPERATORS = Path(os.environ.get("SIM_OPERATORS", Path(__file__).resolve().parents[2].joinpath(
    "shared", "data", "profiles", "aiconfigurator")))
GRANULARITY = 64
LAST_CONTEXT, LAST_TOKENS, LAST_BATCH = 10_240, 8192, 256       # the longest text, and Vllm's limits of a batch
AICB_BATCHES, AICB_LENGTHS = tuple(2**i for i in range(9)), tuple(2**i for i in range(4, 15))


def deployment(tensor_parallel=1):
    """Return the model on `tensor_parallel` accelerators of a node."""
    return Deployment(
        model=load_model("llama-3.1-8b"), accelerator=load_accelerator("h100-sxm-80gb"), node=load_node("dgx-h100"),
        parallelism=Parallelism(tensor_parallel=tensor_parallel))


def plain(backend):
    """Return a maker of a backend that needs no files."""
    return lambda folder: backend(backend.Parameters(), deployment())


def busbw(folder):
    """Return SimAI's formula for the links of the node."""
    return Busbw(Busbw.Parameters(), deployment(tensor_parallel=2))


def table(folder):
    """Return a curve of 29 sizes: 5 us and 200 bytes a ns."""
    folder.mkdir(parents=True, exist_ok=True)
    curve = folder / "curve.csv"
    curve.write_text("collective,num_ranks,ranks_per_node,num_bytes,time_us\n" + "".join(
        f"all_reduce,2,2,{2**i},{5 + 2**i / 200e3}\n" for i in range(29)))
    return Table(Table.Parameters(files=[str(curve)]), deployment(tensor_parallel=2))


def flow(folder):
    """Return rails made of the links of the node; 8 sizes an octave are simulated."""
    return Flow(Flow.Parameters(sizes_per_octave=8), deployment(tensor_parallel=2))


def external(folder):
    """Return a program that answers at once."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "program"
    program.write_text("#!/bin/sh\nprintf 'file\\nsummary\\nlayer_name,run,fwd compute,wg compute,ig compute,"
                       "fwd exposed comm,wg exposed comm,ig exposed comm\\ncollective,run,0,0,0,64,0,0\\n' "
                       "> results/run-EndToEnd.csv\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return External(External.Parameters(binary=str(program), cache=str(folder)), deployment(tensor_parallel=2))


def roofline_with(collective):
    """Return a maker of a roofline with all-reduces priced by a collective model."""
    return lambda folder: Roofline(Roofline.Parameters(), deployment(tensor_parallel=2), collective(folder))


def forest(folder):
    """Return a forest with tables as large as those of a trained one."""
    return Forest(Forest.Parameters(), deployment(), reading=Reading(forest_tables()))


def forest_with_collectives(folder):
    """Return a forest with all-reduces priced by a collective model."""
    return Forest(Forest.Parameters(), deployment(tensor_parallel=2), busbw(folder), Reading(forest_tables()))


def aicb(folder):
    """Return per-layer tables of the roofline."""
    profile = Aicb.Profile(
        deployment=deployment(), build=lambda layers: Roofline(Roofline.Parameters(), layers).predict,
        source="synthetic: roofline", table_model="llama", batch_sizes=AICB_BATCHES, sequence_lengths=AICB_LENGTHS)
    profile.write(folder)
    return Aicb(Aicb.Parameters(tables=str(folder)), deployment())


def operators(folder):
    """Return measured operators; raise Unavailable if they are not here."""
    if not OPERATORS.is_dir():
        raise Unavailable(f"no operator tables: {OPERATORS}")
    return Operators(Operators.Parameters(path=str(OPERATORS), cache_directory=str(folder)), deployment())


def forest_tables():
    """Return tables that grow with the work, about like the roofline; milliseconds of one of 32 layers."""
    tokens, contexts = np.arange(LAST_TOKENS + 1.0), np.arange(0.0, LAST_CONTEXT + 1, GRANULARITY)
    products = np.maximum(0.15, 5e-4 * tokens) / len(ROUNDED_OPERATORS)
    found = {
        "decode": 1e-6 * np.outer(np.arange(LAST_BATCH + 1.0), contexts),
        "prefill": 1e-8 * tokens * np.add.outer(contexts, tokens)}
    covered = {f"attn_{name}": np.full(table.shape, MEASURED, np.uint8) for name, table in found.items()}
    return ForestTables(
        tokens=dict.fromkeys(ROUNDED_OPERATORS, products) | {"attn_kv_cache_save": 1e-5 * tokens},
        kv_granularity=GRANULARITY, covered=covered, **found)


BACKENDS = {        # name: makes it, given an empty folder
    "linear": plain(Linear),
    "roofline": plain(Roofline),
    "roofline, TP 2": lambda folder: Roofline(Roofline.Parameters(), deployment(tensor_parallel=2)),
    "roofline with busbw": roofline_with(busbw),
    "roofline with table": roofline_with(table),
    "roofline with flow": roofline_with(flow),
    "step_roofline": plain(StepRoofline),
    "trained_physics": plain(TrainedPhysics),
    "blackbox": plain(Blackbox),
    "crossmodel": plain(Crossmodel),
    "forest": forest,
    "forest with busbw": forest_with_collectives,
    "aicb": aicb,
    "operators": operators,
}
