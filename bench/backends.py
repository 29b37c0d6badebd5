"""Every latency backend for Llama-3.1-8B on H100s: profiles are made up, operator tables read where they are."""
import os
from pathlib import Path

import numpy as np
from limit import Unavailable

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model, load_node
from simulator.domain.parallelism import Parallelism
from simulator.latency.aicb import Aicb
from simulator.latency.blackbox import Blackbox
from simulator.latency.collective_busbw import Busbw
from simulator.latency.crossmodel import Crossmodel
from simulator.latency.forest import Forest
from simulator.latency.forest_profiles import ROUNDED_OPERATORS
from simulator.latency.forest_tables import MEASURED, ForestTables
from simulator.latency.linear import Linear
from simulator.latency.operators import Operators
from simulator.latency.roofline import Roofline
from simulator.latency.step_roofline import StepRoofline
from simulator.latency.trained_physics import TrainedPhysics

OPERATORS = Path(os.environ.get("SIM_OPERATORS", Path(__file__).resolve().parents[2].joinpath(
    "shared", "data", "profiles", "aiconfigurator")))
GRANULARITY = 64
LAST_CONTEXT, LAST_TOKENS, LAST_BATCH = 10_240, 8192, 256       # the longest text, and Vllm's limits of a batch
AICB_BATCHES, AICB_LENGTHS = tuple(2**i for i in range(9)), tuple(2**i for i in range(4, 15))


def deployment(tensor_parallel=1):
    """Return the model on so many accelerators of a node."""
    return Deployment(
        model=load_model("llama-3.1-8b"), accelerator=load_accelerator("h100-sxm-80gb"), node=load_node("dgx-h100"),
        parallelism=Parallelism(tensor_parallel=tensor_parallel))


def plain(backend):
    """Return a maker of a backend that needs no files."""
    return lambda folder: backend(backend.Parameters(), deployment())


def roofline_with_collectives(folder):
    """Return a roofline whose all-reduces a collective model prices."""
    shared = deployment(tensor_parallel=2)
    return Roofline(Roofline.Parameters(), shared, Busbw(Busbw.Parameters(), shared))


def forest(folder):
    """Return a forest with tables as large as those of a trained one."""
    return Forest(Forest.Parameters(), deployment(), tables=forest_tables())


def forest_with_collectives(folder):
    """Return the same whose all-reduces a collective model prices."""
    shared = deployment(tensor_parallel=2)
    return Forest(Forest.Parameters(), shared, Busbw(Busbw.Parameters(), shared), forest_tables())


def aicb(folder):
    """Return per-layer tables of the roofline."""
    profile = Aicb.Profile(
        deployment=deployment(), build=lambda layers: Roofline(Roofline.Parameters(), layers).predict,
        source="synthetic: roofline", table_model="llama", batch_sizes=AICB_BATCHES, sequence_lengths=AICB_LENGTHS)
    profile.write(folder)
    return Aicb(Aicb.Parameters(tables=str(folder)), deployment())


def operators(folder):
    """Return measured operators; raise Unavailable where they are not here."""
    if not OPERATORS.is_dir():
        raise Unavailable(f"no operator tables: {OPERATORS}")
    return Operators(Operators.Parameters(path=str(OPERATORS), cache_directory=str(folder)), deployment())


def forest_tables():
    """Return tables that grow with the work, about as the roofline does; milliseconds of one of 32 layers."""
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
    "roofline with busbw": roofline_with_collectives,
    "step_roofline": plain(StepRoofline),
    "trained_physics": plain(TrainedPhysics),
    "blackbox": plain(Blackbox),
    "crossmodel": plain(Crossmodel),
    "forest": forest,
    "forest with busbw": forest_with_collectives,
    "aicb": aicb,
    "operators": operators,
}
