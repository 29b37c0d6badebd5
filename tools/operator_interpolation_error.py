"""Errors of interpolation in operator tables: one point is left out and predicted from the others.

    python tools/operator_interpolation_error.py [--path FOLDER] [--accelerator NAME] [--system NAME] [--sites N]
                                                 [--model NAME] [--tensor-parallel N]

Prints a Markdown table: for each table and axis, the relative error of predictions of points left out. "along" leaves
out one inner point of a curve; "site" a whole curve, such as a matrix or a head count that was not measured; "batch"
one inner batch size. README.md beside this file shows the output. For a profile, LLMServingSim's or Frontier's, the
model must be given.
"""
import argparse

import numpy as np

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.layers.gated_delta_net import GatedDeltaNet
from simulator.domain.parallelism import Parallelism
from simulator.latency.operators.curves import Curve, along, at_site
from simulator.latency.operators.database import Database
from simulator.latency.operators.exchanges import TABLES, exchange_curves, light
from simulator.latency.operators.latent_attention import BLOCKS, LatentTables
from simulator.latency.operators.model import Operators

# Recurrences are measured for these widths alone; heads do not matter here.
QWEN = GatedDeltaNet(num_key_heads=1, num_value_heads=1, key_head_dim=128, value_head_dim=128, conv_kernel=4)


def main():
    """Read the arguments, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--path", help="folder of tables; default: the installed aiconfigurator-core")
    parser.add_argument("--accelerator", default="h100-sxm-80gb", help="name in hardware/")
    parser.add_argument("--system", help="its name in the database")
    parser.add_argument("--sites", type=int, default=200, help="curves of each table that are tried, evenly spread")
    parser.add_argument("--model", help="name in models/, for a profile of one model")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="degree of such a profile")
    chosen = parser.parse_args()
    parameters = Operators.Parameters(path=chosen.path, system=chosen.system)
    accelerator = load_accelerator(chosen.accelerator)
    deployment = chosen.model and Deployment(
        model=load_model(chosen.model), accelerator=accelerator,
        parallelism=Parallelism(tensor_parallel=chosen.tensor_parallel))
    database = Database(parameters, accelerator, deployment)
    print("| table | left out | points | median | mean | 90th percentile |")
    print("|---|---|---|---|---|---|")
    for name, what, errors in rows(database, chosen.sites):
        if len(errors):
            median, mean, high = np.median(errors), np.mean(errors), np.percentile(errors, 90)
            print(f"| {name} | {what} | {len(errors)} | {median:.1%} | {mean:.1%} | {high:.1%} |", flush=True)


def rows(database, num_sites):
    """Yield (table, left-out part, relative errors)."""
    for dtype in ("bfloat16", "fp8", "fp8_block", "nvfp4", "int4_wo", "w4a16_mxfp4"):
        products = database.product_tables
        yield from both(f"gemm {dtype}", products.curves(dtype), products.light(dtype), num_sites)
    for phase in ("context", "generation"):
        by_batch = database.attention_curves(phase, "bfloat16", 0)
        name = f"{phase}_attention bfloat16"
        light_ns = database.attention_light(phase, 1, "bfloat16", 0)
        yield from both(f"{name}, batch 1", by_batch.get(1, {}), light_ns, num_sites, is_root=phase == "context")
        yield name, "batch", batch_errors(by_batch, num_sites)
        yield from latent_rows(database, phase, num_sites)
        for i, curves in enumerate(database.recurrence_curves(phase, 1, QWEN), start=1):
            name = f"gdn {phase}, kernel {i}"
            yield from both(name, curves, lambda heads, size: heads[1] * size, num_sites)
    for mode in TABLES:
        for what in ("dispatch", "combine"):
            curves = exchange_curves(database, mode, database.node_size, what)
            yield from both(f"{mode} {what}", curves, light, num_sites)
    for dtype in ("bfloat16", "fp8", "fp8_block", "nvfp4", "int4_wo", "w4a16_mxfp4"):
        experts = database.expert_tables
        yield from both(f"moe {dtype}", experts.curves(dtype), experts.light(dtype), num_sites)
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        curves = database.collective_curves(kind, is_graph=True)
        yield kind, "along", along_errors(curves, lambda site, size: size, num_sites, is_root=False)


def latent_rows(database, phase, num_sites):
    """Yield the errors of dense latent attention, of decodes in a graph and launched by the host, and of sparse one."""
    dense, sparse = (BLOCKS[f"deepseek-ai/DeepSeek-{version}"][1] for version in ("V3", "V3.2"))
    sources = [(f"dsa_{phase}_module, rest", sparse, False), (f"mla_{phase}_module, rest", dense, False)]
    for name, part, is_graph in sources + [("generation_mla", dense, True)] * (phase == "generation"):
        tables = LatentTables(database, part, "bfloat16", is_graph)
        curves, light_ns = tables.curves(phase), tables.light(phase, 1)
        yield from both(f"{name}, batch 1", curves.get(1, {}), light_ns, num_sites, phase == "context")
        yield name, "batch", batch_errors(curves, num_sites)


def both(name, curves, light_ns, num_sites, is_root=False):
    """Yield the errors along curves, and of whole curves."""
    yield name, "along", along_errors(curves, light_ns, num_sites, is_root)
    yield name, "site", site_errors(curves, light_ns, num_sites, is_root)


def along_errors(curves, light_ns, num_sites, is_root):
    """Return the errors of inner points, left out one at a time."""
    errors = []
    for site in spread(curves, num_sites):
        sizes, ns = curves[site]
        for i in range(1, len(sizes) - 1):
            rest = Curve(np.delete(sizes, i), np.delete(ns, i))
            found = along(rest, sizes[i:i + 1], lambda at, site=site: light_ns(site, at), is_root).ns[0]
            errors.append(abs(found / ns[i] - 1))
    return np.array(errors)


def site_errors(curves, light_ns, num_sites, is_root):
    """Return the errors of all points of a curve that is left out; curves without a near curve are skipped."""
    errors = []
    for site in spread(curves, num_sites):
        rest = {other: curve for other, curve in curves.items() if other != site}
        found = at_site(rest, site, curves[site].sizes, light_ns, is_root)
        if found is not None:
            errors.append(np.abs(found.ns / curves[site].ns - 1))
    return np.concatenate(errors) if errors else np.array([])


def batch_errors(by_batch, num_sites):
    """Return the errors of inner batch sizes, linear between the next smaller and larger at equal length."""
    batches, errors = sorted(by_batch), []
    for low, middle, high in zip(batches, batches[1:], batches[2:]):
        share = (middle - low) / (high - low)
        for site in spread(by_batch[middle], num_sites):
            if site not in by_batch[low] or site not in by_batch[high]:
                continue
            three = [dict(zip(*by_batch[batch][site])) for batch in (low, middle, high)]
            for size in set(three[0]) & set(three[1]) & set(three[2]):
                found = three[0][size] + share * (three[2][size] - three[0][size])
                errors.append(abs(found / three[1][size] - 1))
    return np.array(errors)


def spread(curves, most):
    """Return at most `most` sites, evenly spread over the sorted ones."""
    sites = sorted(curves)
    return sites[::max(1, -(-len(sites) // most))]


if __name__ == "__main__":
    main()
