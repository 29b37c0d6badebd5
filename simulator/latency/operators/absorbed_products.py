"""Absorbed products of latent attention: the table `mla_bmm`.

Decodes multiply queries with the matrix of keys (`pre`), and weighted latents with the matrix of values (`post`), for
each head, in place of making keys and values from the latents. Measured with DeepSeek-V3's widths; the engine keeps
both matrices in 16 bit, also where the checkpoint has them in 8 (vLLM 0.33, mla_attention.py).
"""
import numpy as np

from simulator.latency.operators.curves import Curve, Times
from simulator.latency.operators.rows import formats

TABLE = "mla_bmm"
WIDTHS = (512, 128, 128)        # of latents; of keys without position, of values, a head
PRODUCTS = ("mla_gen_pre", "mla_gen_post")


def absorbed_times(database, part, tokens: np.ndarray) -> Times | None:
    """Return the times of both products; None: not measured.

    part : LatentAttention, as one rank holds it.
    """
    if (part.kv_rank, part.nope_head_dim, part.value_head_dim) != WIDTHS:
        return None
    found = [database.ask(TABLE, absorbed_curves(database, name), (part.num_heads,), tokens, light(database))
             for name in PRODUCTS]
    if None in found:
        return None
    return Times(sum(times.ns for times in found), np.max([times.origins for times in found], axis=0))


def absorbed_curves(database, name: str) -> dict[tuple, Curve]:
    """Return the curves over tokens of a product, by (heads,)."""
    return database.curves((TABLE, name), lambda: _read(database, name))


def light(database):
    """Return the speed of light: 2 FLOPs a weight and token; all bytes moved once."""
    latent, key, _ = WIDTHS
    flops_per_ns = database.flops_per_ns("bfloat16")

    def light_ns(site, tokens):
        heads, = site
        return heads * np.maximum(2 * tokens * latent * key / flops_per_ns,
                                  2 * (latent * key + tokens * (latent + key)) / database.bytes_per_ns)
    return light_ns


def _read(database, name: str) -> dict[tuple, Curve]:
    columns = database.columns(TABLE)
    if columns is None:
        return {}
    kept = (columns["op_name"] == name) & (formats(columns, "gemm_dtype") == "bfloat16")
    return database.split(database.pick(TABLE, columns, kept), ("num_heads",), "num_tokens")
