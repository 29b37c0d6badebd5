"""Errors of `operators` on prompt chunks behind a cached prefix, on tables of whole blocks of attention.

    python tools/block_prefix_error.py [SYSTEM ...]

Without measured prefixes `operators` prices a chunk of s tokens behind p others as max(R(s), R(p + s) - R(p)), R(n) the
time of attention for a prompt of n tokens (simulator/latency/operators/model.pyx). Tables of DeepSeek-V4's blocks hold
such chunks and are used for prices (simulator/latency/operators/prefixes.py): the error of that is by leave-one-out, of
each row from the other prefixes of its length (along) and from the next shorter and longer chunks (across). Each row,
one prompt, is predicted with its measured products. Prints the relative errors of blocks, by table and length of the
prefix. docs/guide/operator_tables.md shows the means.
"""
import sys
from functools import partial

import numpy as np

from simulator.domain.facts import load_accelerator
from simulator.latency.operators.blocks import CONTEXT, FORMATS, products_ns
from simulator.latency.operators.curves import along
from simulator.latency.operators.database import Database
from simulator.latency.operators.latent_attention import BLOCKS, LatentTables
from simulator.latency.operators.model import Operators
from simulator.latency.operators.prefixes import left_out, prefix_curves
from simulator.latency.operators.sparse_attention import KNOWN, SparseTables
from simulator.latency.roofline.law_errors import SYSTEMS

LONG = 1024                     # tokens of a prefix that counts as long


def rows_of(database, table, block, **required):
    """Yield (heads, tokens, prefix, ns) of one prompt behind a prefix."""
    columns = database.columns(table)
    name = next((each for each in block.names if (columns["model"] == each).any()), None)
    for gemm_type in ("bfloat16", "fp8_block"):
        kept = (columns["model"] == name) & (columns["gemm_type"] == gemm_type) & (columns["batch_size"] == 1)
        for column, value in (required | {"kv_cache_dtype": "fp8"}).items():
            kept &= columns[column] == value
        if kept.any():
            break
    for row in np.flatnonzero(kept & (columns["step"] > 0)):
        yield (gemm_type, int(columns["num_heads"][row]), columns["isl"][row], columns["step"][row],
               columns["latency_ms"][row] * 1e6)


def errors(database, table, block, tables_of):
    """Return |predicted / measured - 1| and the prefix of each row."""
    found = []
    for gemm_type, heads, tokens, prefix, ns in rows_of(database, table, block):
        tables = tables_of(block.of_heads(heads))
        own, whole, before = (tables.times(CONTEXT, 1, np.array([n])).ns[0] for n in (tokens, prefix + tokens, prefix))
        products = products_ns(database, block, heads, gemm_type, np.array([tokens]))[0]
        found.append((abs((products + max(own, whole - before)) / ns - 1), prefix))
    return np.array(found).reshape(-1, 2)


def errors_left_out(database, table, block):
    """Return |predicted / measured - 1| and the prefix of each row, from others along and across: two arrays."""
    columns, found = database.columns(table), []
    name = next((each for each in block.names if (columns["model"] == each).any()), None)
    by_format = (database.by_batch(columns, CONTEXT, ("num_heads",), model=name, gemm_type=each, step=0.0,
                                   kv_cache_dtype="fp8") for each in FORMATS)
    prompts = next((found_of[1] for found_of in by_format if 1 in found_of), {})
    for (heads,), prompt in prompts.items():
        curves = prefix_curves(database, table, block, int(heads), "fp8").get(1, {})
        found += left_out(curves, partial(prompt_ns, prompt)) if curves else []
    found = np.array(found).reshape(-1, 4)
    return [np.column_stack([abs(found[:, side] / found[:, 3] - 1), found[:, 0]]) for side in (1, 2)]


def prompt_ns(curve, tokens):
    """Return the time of whole prompts."""
    return along(curve, np.asarray(tokens, dtype=float), lambda at: at, is_root=True).ns


def main():
    """Print a row for each system, table, law and length of prefixes."""
    print("| system | table, model | law | prefix | rows | median | mean | 90th percentile |")
    print("|---|---|---|---|---|---|---|---|")
    names = {system: accelerator for accelerator, system in SYSTEMS.items()}
    for system in sys.argv[1:] or ("h100_sxm", "b200_sxm"):
        database = Database(Operators.Parameters(system=system), load_accelerator(names[system]))
        kinds = [(kind, block, partial(SparseTables, database, kv_dtype="fp8")) for kind, block in KNOWN]
        kinds += [("dsa", block, partial(LatentTables, database, kv_dtype="fp8", is_graph=True))
                  for block in BLOCKS if block.of_heads(1).indexer]
        for kind, block, tables_of in kinds:
            table = f"{kind}_context_module"
            if table in database.files:
                name = f"{system} | {kind}, {block.names[0].split('/')[1]}"
                show(f"{name} | difference", errors(database, table, block, tables_of))
                for law, size in zip(("along", "across"), errors_left_out(database, table, block), strict=True):
                    show(f"{name} | {law}", size)


def show(name, size):
    """Print the errors of short and of long prefixes; none: nothing."""
    for text, kept in ((f"below {LONG}", size[:, 1] < LONG), (f"from {LONG}", size[:, 1] >= LONG)):
        if kept.any():
            of = size[kept, 0]
            print(f"| {name} | {text} | {kept.sum()} | {np.median(of):.1%} | {of.mean():.1%} | "
                  f"{np.quantile(of, 0.9):.1%} |")


if __name__ == "__main__":
    main()
