"""Lookups that a deployment makes in its tables: a database without files that records them.

Profiling of a machine uses the record to measure exactly the required sites.
"""
import numpy as np

from simulator.domain.hardware_spec import AcceleratorSpec
from simulator.latency.operators.curves import Times
from simulator.latency.operators.database import Database

# Tables of operators that profiling does not measure, and their names.
OTHERS = {**dict.fromkeys(("context_mla", "generation_mla", "mla_context_module", "mla_generation_module",
                           "dsa_context_module", "dsa_generation_module"), "latent attention"),
          **dict.fromkeys((f"{kind}_{phase}_module" for kind in ("dsv4_csa", "dsv4_hca", "msa")
                           for phase in ("context", "generation")), "sparse attention"),
          "mhc_module": "hyper-connections",
          **dict.fromkeys(("gdn", "kda", "mamba2"), "linear attention"),
          **dict.fromkeys(("wideep_deepep_ll", "wideep_deepep_normal", "moe_a2a", "trtllm_alltoall"),
                          "exchange of experts")}


class Asked(Database):
    """Returns no times. Attributes hold each lookup once, in order.

    products : (format, n, k), on a rank.
    small_operators : (operator, elements that one kernel moves per token).
    attention_parts : (heads, KV heads, head_dim, KV format, window), on a rank.
    experts : (format, hidden, intermediate, chosen, experts, TP, EP).
    collectives : (kind, ranks).
    quantized_widths : elements per token that are converted to fp8.
    others : names of operators outside these tables.
    """

    def __init__(self, parameters, accelerator: AcceleratorSpec):
        super().__init__(parameters, accelerator, files={})
        self.products: dict[tuple[str, float, float], None] = {}
        self.small_operators: dict[tuple[str, float], None] = {}
        self.attention_parts: dict[tuple, None] = {}
        self.experts: dict[tuple, None] = {}
        self.collectives: dict[tuple[str, int], None] = {}
        self.quantized_widths: dict[float, None] = {}
        self.others: dict[str, None] = {}

    def columns(self, table: str, is_usable=None, alias: str = "") -> None:
        if table in OTHERS:
            self.others[OTHERS[table]] = None

    def gemm(self, dtype: str, n: int, k: int, tokens: np.ndarray) -> Times | None:
        self.products[dtype, n, k] = None
        return super().gemm(dtype, n, k, tokens)

    def small(self, name: str, elements: float, tokens: np.ndarray) -> Times | None:
        if name == "convolution_gates":
            self.others["gates and convolutions of linear attention"] = None
        else:
            self.small_operators[name, elements] = None
        return super().small(name, elements, tokens)

    def quantizing(self, width: float, tokens: np.ndarray) -> Times | None:
        self.quantized_widths[width] = None
        return super().quantizing(width, tokens)

    def attention(self, phase: str, batch: int, part, kv_dtype: str, window: int, lengths: np.ndarray) -> Times | None:
        self.attention_parts[part.num_heads, part.num_kv_heads, part.head_dim, kv_dtype, window] = None
        return super().attention(phase, batch, part, kv_dtype, window, lengths)

    def moe(self, dtype: str, site: tuple, tokens: np.ndarray) -> Times | None:
        self.experts[dtype, *site] = None
        return super().moe(dtype, site, tokens)

    def collective(self, kind: str, ranks: int, num_bytes: np.ndarray, is_graph: bool) -> Times | None:
        self.collectives[kind, ranks] = None
        return super().collective(kind, ranks, num_bytes, is_graph)
