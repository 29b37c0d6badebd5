"""Errors of `operators` on prompt chunks behind a cached prefix, on tables of whole blocks of attention.

    python tools/block_prefix_error.py [SYSTEM ...]

`operators` prices a chunk of s tokens behind p others as max(R(s), R(p + s) - R(p)), R(n) the time of attention for a
prompt of n tokens (simulator/latency/operators/model.pyx). Tables of whole blocks also hold such chunks, which are not
used for prices: each row, one prompt, is predicted by that law and its measured products. Prints the relative errors
of blocks, by table and length of the prefix. README.md beside this file shows the output.
"""
import sys
from functools import partial

import numpy as np

from simulator.domain.facts import load_accelerator
from simulator.latency.operators.blocks import CONTEXT, products_ns
from simulator.latency.operators.database import Database
from simulator.latency.operators.latent_attention import BLOCKS, LatentTables
from simulator.latency.operators.model import Operators
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


def main():
    """Print a row for each system, table and length of prefixes."""
    print("| system | table, model | prefix | rows | median | mean | 90th percentile |")
    print("|---|---|---|---|---|---|---|")
    names = {system: accelerator for accelerator, system in SYSTEMS.items()}
    for system in sys.argv[1:] or ("h100_sxm", "b200_sxm"):
        database = Database(Operators.Parameters(system=system), load_accelerator(names[system]))
        kinds = [(kind, block, partial(SparseTables, database, kv_dtype="fp8")) for kind, block in KNOWN]
        kinds += [("dsa", block, partial(LatentTables, database, kv_dtype="fp8", is_graph=True))
                  for block in BLOCKS if block.of_heads(1).indexer]
        for kind, block, tables_of in kinds:
            table = f"{kind}_context_module"
            if table in database.files:
                size = errors(database, table, block, tables_of)
                for text, kept in ((f"below {LONG}", size[:, 1] < LONG), (f"from {LONG}", size[:, 1] >= LONG)):
                    if kept.any():
                        of = size[kept, 0]
                        print(f"| {system} | {kind}, {block.names[0].split('/')[1]} | {text} | {kept.sum()} | "
                              f"{np.median(of):.1%} | {of.mean():.1%} | {np.quantile(of, 0.9):.1%} |")


if __name__ == "__main__":
    main()
