"""Prices that [latency] without can omit, to measure the effect of each: docs/accuracy.md.

Prices with a key of their own are not listed: expert_load, expert_kernel, [latency.host], [latency.collective].
"""
from typing import Annotated, Literal

from msgspec import Meta

QK_NORM, QUANTIZING, MIXED_ATTENTION = "qk_norm", "quantizing", "mixed_attention"
LASTING_RATE, MEMORY_FLOOR, UNEQUAL_CONTEXTS = "lasting_rate", "memory_floor", "unequal_contexts"
OUTLIERS, FIXED_SCALES, SPLIT_NORMS, FUSED_NORMS = "outliers", "fixed_scales", "split_norms", "fused_norms"
EXPERT_SHARES = "expert_shares"
# Name -> (the price, the behaviour without it), as text.
LEFT_OUT = {
    QK_NORM: ("norms of queries and keys", "they take nothing"),
    QUANTIZING: ("attention's outputs made fp8", "that takes nothing"),
    MIXED_ATTENTION: ("decodes beside prompts", "they attend as they do alone"),
    UNEQUAL_CONTEXTS: ("contexts of unlike lengths", "all count as long as their mean"),
    LASTING_RATE: ("long products at the rate that lasts", "they run at the clocks of a short measurement"),
    OUTLIERS: ("products far slower than their neighbours left out", "they count as measured"),
    FIXED_SCALES: ("fp8 products of TensorRT-LLM with fixed scales", "a kernel finds the scales of each batch"),
    SPLIT_NORMS: ("norms over all heads, which tensor parallelism splits", "ranks norm their heads alone"),
    FUSED_NORMS: ("norms fused with the all-reduce before them", "they are kernels of their own"),
    EXPERT_SHARES: ("experts of a rank measured with the load of more ranks left out", "they count as measured"),
    MEMORY_FLOOR: ("points that ran from a cache raised to memory's bandwidth", "they count as measured")}

Without = Annotated[tuple[Literal[tuple(LEFT_OUT)], ...], Meta(description=(
    "prices to omit, to see their effect: "
    + "; ".join(f"{name}: {what}: {instead}" for name, (what, instead) in LEFT_OUT.items())))]
