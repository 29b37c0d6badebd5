"""Latent attention, dense and sparse, measured as a kernel or as the whole block with its products.

`context_mla` and `generation_mla` time the kernel. `mla_*_module` and `dsa_*_module` time a block of DeepSeek-V3, V3.2
or GLM-5 from its input to its output product (blocks.py); vLLM's are launched by the host, 66 us on H200 and 140 us
(sparse) at least.

Prompts run outside of CUDA graphs in vLLM, on other kernels than its decodes: the block's table takes precedence.
Decodes are replayed from a graph: the kernel's table takes precedence, and use of the block's table adds a note. On one
H200, 128 heads, one sequence of 1024 tokens: 173 us for the block, 128 us for products and kernel. Sparse attention has
no kernel tables of this form. Rows of blocks with a prefix (dsa, step 128) are not used. SGLang's tables hold layers
that use the choice of an earlier layer, as GLM-5.2's do, under an op_name of their own.
"""
from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from simulator.domain.layers.indexer import Indexer
from simulator.domain.layers.latent import LatentAttention
from simulator.latency.operators.absorbed_products import absorbed_times
from simulator.latency.operators.blocks import Block, rests
from simulator.latency.operators.curves import Curve, Times, at_site

# From the config.json of each; the number of heads is a column of the tables.
_V3 = LatentAttention(num_heads=1, query_rank=1536, kv_rank=512, nope_head_dim=128, rope_head_dim=64,
                      value_head_dim=128)
_INDEXER = Indexer(num_heads=32, head_dim=128, top_k=2048)
_GLM_5 = LatentAttention(num_heads=1, query_rank=2048, kv_rank=512, nope_head_dim=192, rope_head_dim=64,
                         value_head_dim=256, indexer=_INDEXER)
BLOCKS = tuple(Block(names, hidden, lambda heads, part=part: replace(part, num_heads=heads))
               for names, hidden, part in (
    (("deepseek-ai/DeepSeek-V3",), 7168, _V3),
    (("deepseek-ai/DeepSeek-V3.2",), 7168, replace(_V3, indexer=Indexer(num_heads=64, head_dim=128, top_k=2048))),
    (("zai-org/GLM-5", "nvidia/GLM-5.2-NVFP4", "zai-org/GLM-5-FP8"), 6144, _GLM_5),
    (("zai-org/GLM-5.2", "zai-org/GLM-5.2-FP8"), 6144, replace(_GLM_5, indexer=replace(_INDEXER, is_shared=True)))))


class LatentTables:
    """Times of latent attention by heads, independent of the rank of its queries.

    Parameters
    ----------
    database : Database
    part : LatentAttention
    kv_dtype : bfloat16 or fp8.
    is_graph : whether decodes are replayed from a CUDA graph.
    """

    def __init__(self, database, part: LatentAttention, kv_dtype: str, is_graph: bool):
        self._database, self._part, self._kv_dtype, self._is_graph = database, part, kv_dtype, is_graph

    def table(self, phase: str) -> str:
        """Return the names of the tables that a phase was read from."""
        return "+".join(name for name in self._database.used if phase in name and name.endswith(("_mla", "_module")))

    def times(self, phase: str, batch: int, lengths: np.ndarray) -> Times | None:
        """Return the times of a measured batch size; None: not measured."""
        curves = self.curves(phase).get(batch, {})
        return at_site(curves, (float(self._part.num_heads),), lengths, self.light(phase, batch),
                       is_root=phase == "context")

    def curves(self, phase: str) -> dict[int, dict]:
        """Return by batch size the curves of a phase, by (heads,)."""
        key = ("latent", phase, self._kv_dtype, self._is_graph, _widths(self._part))
        return self._database.curves(key, lambda: self._read(phase))

    def _read(self, phase: str) -> dict[int, dict]:
        is_replayed = phase == "generation" and self._is_graph
        for is_block in (False, True) if is_replayed else (True, False):
            found = self._blocks(phase) if is_block else self._kernels(phase)
            if found and is_block and is_replayed:
                floor_us = min(curve.ns.min() for curve in found[min(found)].values()) * 1e-3
                self._database.notes.append(
                    f"decodes of latent attention were measured as whole blocks, {floor_us:.0f} us at least beyond "
                    f"their products; where these were launched by the host, a CUDA graph is faster")
            if found:
                return found
        return {}

    def _kernels(self, phase: str) -> dict[int, dict]:
        if _widths(self._part) != _widths(_V3):
            return {}
        table = f"{phase}_mla"
        columns = self._database.columns(table, lambda each: self._database.is_from_graph(each, table))
        if columns is None:
            return {}
        kernels = self._database.by_batch(columns, phase, ("num_heads",), mla_dtype="bfloat16",
                                          kv_cache_dtype=self._kv_dtype)
        return kernels if phase == "context" else self._with_absorbed(kernels)

    def _with_absorbed(self, kernels: dict[int, dict]) -> dict[int, dict]:
        """Return decodes with their absorbed products, in place of that which makes keys and values.

        The latter is priced for all tokens, as prompts need it; so the difference of both is added here.
        """
        found = {}
        for batch, curves in kernels.items():
            for heads, curve in curves.items():
                part, one = replace(self._part, num_heads=int(heads[0])), np.array([float(batch)])
                absorbed = absorbed_times(self._database, part, one)
                expanding = next(each for each in part.products(0) if each.name == "kv_up")
                expanded = self._database.gemm("bfloat16", expanding.n, expanding.k, one)
                if absorbed is None or expanded is None:
                    return kernels
                floor_ns = self.light("generation", batch)(heads, curve.sizes)
                ns = np.maximum(curve.ns + absorbed.ns[0] - expanded.ns[0], floor_ns)
                found.setdefault(batch, {})[heads] = Curve(curve.sizes, ns)
        return found

    def _blocks(self, phase: str) -> dict[int, dict]:
        block = next((block for block in BLOCKS if _widths(block.of_heads(1)) == _widths(self._part)), None)
        if block is None:
            return {}
        table = f"{'dsa' if self._part.indexer else 'mla'}_{phase}_module"
        is_shared = self._part.indexer and self._part.indexer.is_shared
        name = f"{table}_skip_indexer" if is_shared else table
        return rests(self._database, table, phase, block, self.light_of(phase), op_name=name, mla_dtype="bfloat16",
                     kv_cache_dtype=self._kv_dtype)

    def light_of(self, phase: str) -> Callable:
        """Return the speed of light by batch size."""
        return lambda batch: self.light(phase, batch)

    def light(self, phase: str, batch: int) -> Callable:
        """Return the speed of light.

        Prompts attend to expanded keys; decodes, and all sparse attention, to latents.
        """
        part, rate = self._part, self._database
        flops_per_ns, bytes_per_ns = rate.flops_per_ns("bfloat16"), rate.bytes_per_ns
        kv_bytes = (1 if self._kv_dtype == "fp8" else 2) * part.kv_elements_per_token
        latent_flops = part.decode_flops_per_context_token / part.num_heads
        top = part.indexer.top_k if part.indexer else np.inf
        pair_flops = latent_flops if part.indexer else part.flops_per_context_token / part.num_heads
        indexed = part.indexer.pair_flops if part.indexer else 0

        def light_ns(site, length):
            heads, = site
            seen = np.minimum(length, top)
            if phase == "context":
                pairs, moved = length * (length + 1) / 2, 4 * length * heads * (part.head_dim + part.value_head_dim)
                attended = seen * (seen + 1) / 2 + (length - seen) * seen
                return batch * np.maximum((attended * heads * pair_flops + pairs * indexed) / flops_per_ns,
                                          moved / bytes_per_ns)
            return batch * np.maximum((seen * heads * latent_flops + length * indexed) / flops_per_ns,
                                      seen * kv_bytes / bytes_per_ns)
        return light_ns


def _widths(part: LatentAttention) -> tuple:
    return part.kv_rank, part.rope_head_dim, part.nope_head_dim, part.value_head_dim, part.indexer
