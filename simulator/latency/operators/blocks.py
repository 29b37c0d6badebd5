"""Attention measured as whole blocks: the time of a block beyond its products.

Tables named `*_module` time a block of one layer from its input to its output product. The time of a block minus its
products and the small operators between them is the rest: attention, with compressor and indexer where it has them. So
products and rest add up to the measured block. The rest does not depend on the width of the model. It is taken from
rows with bfloat16 products if there are any, since vLLM's tables have fp8_block products launched by the host
(database.py), else from rows of fp8_block, less the products that `operators` prices for them; and it is never below
the speed of light.
"""
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from simulator.domain.layers.mixers import Pass, SoftmaxAttention
from simulator.latency.operators.curves import Curve

CONTEXT, GENERATION = "context", "generation"
PLAIN = "bfloat16"
FORMATS = (PLAIN, "fp8_block")      # of products, the first comes first


class Block(NamedTuple):
    """A model with measured blocks of attention.

    names : in the tables. hidden : its width. of_heads : returns the part of a rank with so many heads.
    """

    names: tuple[str, ...]
    hidden: int
    of_heads: Callable[[int], SoftmaxAttention]


def rests(database, table: str, phase: str, block: Block, light: Callable, **required) -> dict[int, dict]:
    """Return by batch size the curves of the rests of blocks, by (heads,).

    Empty: not measured. light : batch size -> speed of light of a rest. required : values of columns.
    """
    columns = database.columns(table, lambda each: name_in(each, block) is not None)
    if columns is None:
        return {}
    name, required = name_in(columns, block), required | ({"step": 0.0} if phase == CONTEXT else {})
    for gemm_type in FORMATS:
        measured = database.by_batch(columns, phase, ("num_heads",), model=name, gemm_type=gemm_type, **required)
        found = {}
        for batch, curves in measured.items():
            for heads, curve in curves.items():
                rows = batch * (curve.sizes if phase == CONTEXT else np.ones(len(curve.sizes)))
                product_ns = products_ns(database, block, int(heads[0]), gemm_type, rows)
                if product_ns is not None:
                    floor_ns = light(batch)(heads, curve.sizes)
                    found.setdefault(batch, {})[heads] = Curve(
                        curve.sizes, np.maximum(curve.ns - product_ns, floor_ns))
        if found:
            return found
    return {}


def products_ns(database, block: Block, heads: int, gemm_type: str, rows: np.ndarray) -> np.ndarray | None:
    """Return the time of products and small operators of a block.

    None: a product was not measured. Quantising of attention's outputs is among them, as composition.py adds it.
    """
    part = block.of_heads(heads)
    products = [database.gemm_like(gemm_type, each.n, each.k, rows) for each in part.products(block.hidden)]
    if None in products:
        return None
    small_ns = sum(database.small_ns(2 * each.elements, rows, each.kernels) for each in part.small_operators)
    quantizing = database.quantizing(part.output_width, rows) if gemm_type != PLAIN and database.is_of_vllm else None
    return sum(times.ns for times in products) + small_ns + (quantizing.ns if quantizing else 0.0)


def passes_light(database, of_heads: Callable[[int], SoftmaxAttention], element_bytes: float, phase: str,
                 batch: int) -> Callable:
    """Return the speed of light of the passes over the context.

    The longer of FLOPs and bytes of each.
    """
    flops_per_ns, bytes_per_ns = database.flops_per_ns(PLAIN), database.bytes_per_ns

    def light_ns(site, lengths):
        return batch * sum(_pass_ns(each, lengths) for each in of_heads(int(site[0])).passes(element_bytes))

    def _pass_ns(each: Pass, lengths):
        seen = np.minimum(lengths, each.window) if each.window else lengths
        if phase == GENERATION:
            return np.maximum(seen * each.decode_flops / flops_per_ns, seen * each.kv_bytes / bytes_per_ns)
        return np.maximum(_pairs(each, lengths) * each.pair_flops / flops_per_ns,
                          lengths * each.kv_bytes / bytes_per_ns)
    return light_ns


def behind_light(database, part: SoftmaxAttention, element_bytes: float) -> Callable:
    """Return the speed of light of one prompt of s tokens behind p others.

    light(s, p), in ns.
    """
    flops_per_ns, bytes_per_ns = database.flops_per_ns(PLAIN), database.bytes_per_ns

    def light_ns(tokens, prefix):
        return sum(np.maximum((_pairs(each, prefix + tokens) - _pairs(each, prefix)) * each.pair_flops / flops_per_ns,
                              (np.minimum(prefix, each.window or np.inf) + tokens) * each.kv_bytes / bytes_per_ns)
                   for each in part.passes(element_bytes))
    return light_ns


def _pairs(each: Pass, lengths):
    seen = np.minimum(lengths, each.window) if each.window else lengths
    return seen * (seen + 1) / 2 + (lengths - seen) * seen


def name_in(columns: dict, block: Block) -> str | None:
    """Return the name of a model in a table; None: its rows are of other models."""
    return next((name for name in block.names if (columns["model"] == name).any()), None)
