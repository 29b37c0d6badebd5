"""Attention to compressed tokens (DeepSeek-V4) and to picked blocks of tokens (MiniMax-M3), measured as whole blocks.

`dsv4_csa_*_module` and `dsv4_hca_*_module` hold compressed attention with and without an indexer, for the heads of a
rank, with an fp8 cache; `msa_*_module` MiniMax's sparse attention; blocks.py takes their products off. Layers with
DeepSeek-V4's window alone are in no table: they take the time of HCA at the same length, in proportion to the FLOPs and
bytes of both.

Contexts beyond the blocks, which end at 65,536 tokens, add the growth of the kernel that reads the whole context:
`dsv4_paged_mqa_logits_module`, the indexer's scores, or `dsv4_hca_attn_module`, attention of 64 heads.

Tables without a sparse kernel are refused, both phases by their decodes: TensorRT-LLM's `msa_*` outside of data
center Blackwell (kernel "default": up to 3.6 s on H100, where vLLM takes 5 ms), SGLang's `dsv4_*` on RTX PRO 6000 (0.7
ms at least without, 2.3 ms with all compressed tokens, up to 700 ms).
"""
from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from simulator.domain.layers.csa_hca import CompressedAttention
from simulator.domain.layers.indexer import Indexer
from simulator.domain.layers.msa import BlockSparseAttention
from simulator.latency.operators.blocks import CONTEXT, GENERATION, Block, behind_light, passes_light, rests
from simulator.latency.operators.curves import INTERPOLATED, Curve, Times, at_site
from simulator.latency.operators.prefixes import Chunks, prefix_curves
from simulator.latency.operators.rows import default

HCA_RATIO = 128
# From the config.json of each.
_FLASH = CompressedAttention(
    num_heads=64, head_dim=512, rope_head_dim=64, query_rank=1024, output_rank=1024, output_groups=8, window=128,
    ratio=4, indexer=Indexer(num_heads=64, head_dim=128, top_k=512))
_PRO = replace(_FLASH, num_heads=128, query_rank=1536, output_groups=16,
               indexer=Indexer(num_heads=64, head_dim=128, top_k=1024))
_M3 = BlockSparseAttention(num_heads=64, num_kv_heads=4, head_dim=128, qk_norm="head", index_heads=4,
                           index_head_dim=128, top_k_blocks=16)
# Kernels that read the whole context, of contexts beyond the blocks.
READERS = {"dsv4_csa": "dsv4_paged_mqa_logits_module", "dsv4_hca": "dsv4_hca_attn_module"}
UNSOUND_KERNEL, SLOWEST_DECODE_NS = "default", 500_000.0       # the fastest decode of a table


def compressed_of_heads(whole: CompressedAttention) -> Callable[[int], CompressedAttention]:
    """Return the share of a rank by its heads: groups of outputs are split with them."""
    group = whole.num_heads // whole.output_groups
    return lambda heads: replace(whole, num_heads=heads, output_groups=max(heads // group, 1))


def sparse_of_heads(whole: BlockSparseAttention) -> Callable[[int], BlockSparseAttention]:
    """Return the share of a rank by its heads: at least one KV head."""
    group = whole.num_heads // whole.num_kv_heads
    return lambda heads: replace(whole, num_heads=heads, num_kv_heads=max(heads // group, 1))


_FLASH_NAMES = ("sgl-project/DeepSeek-V4-Flash-FP8", "deepseek-ai/DeepSeek-V4-Flash")
_PRO_NAMES = ("deepseek-ai/DeepSeek-V4-Pro", "sgl-project/DeepSeek-V4-Pro-FP8")
KNOWN = (*((kind, Block(names, hidden, compressed_of_heads(part)))
           for names, hidden, whole in ((_FLASH_NAMES, 4096, _FLASH), (_PRO_NAMES, 7168, _PRO))
           for kind, part in (("dsv4_csa", whole), ("dsv4_hca", replace(whole, ratio=HCA_RATIO, indexer=None)))),
         ("msa", Block(("MiniMaxAI/MiniMax-M3",), 6144, sparse_of_heads(_M3))))


class SparseTables:
    """Times of a rank's attention beyond its products.

    Parameters
    ----------
    database : Database
    part : CompressedAttention or BlockSparseAttention, as a rank holds it.
    kv_dtype : bfloat16 or fp8.
    """

    def __init__(self, database, part, kv_dtype: str):
        self._database, self._part, self._kv_dtype = database, part, kv_dtype
        self._element_bytes = 1 if kv_dtype == "fp8" else 2
        self.kind, self._block = block_of(part)
        self.is_scaled = self.kind == "dsv4_hca" and part.ratio == 0
        self.name = "window_attention" if self.is_scaled else self.kind.removeprefix("dsv4_")

    def table(self, phase: str) -> str:
        """Return the name of the table of a phase."""
        return f"{self.kind}_{phase}_module"

    def curves(self, phase: str) -> dict[int, dict]:
        """Return by batch size the curves of a phase, by (heads,)."""
        if self._block is None:
            return {}
        key = (self.kind, phase, self._kv_dtype, self._block.names)
        return self._database.curves(key, lambda: self._read(phase))

    def times(self, phase: str, batch: int, lengths: np.ndarray) -> Times | None:
        """Return the times of a measured batch size; None: not measured."""
        curves, heads = self.curves(phase).get(batch, {}), (float(self._part.num_heads),)
        if not curves:
            return None
        times = at_site(curves, heads, lengths, self.light(phase, batch), is_root=phase == CONTEXT)
        if times is None or not self.is_scaled:
            return times
        own, tabled = (passes_light(self._database, of_heads, self._element_bytes, phase, batch)(heads, lengths)
                       for of_heads in (lambda heads: self._part, self._block.of_heads))
        share = np.divide(own, tabled, out=np.ones(len(lengths)), where=tabled > 0)
        return Times(times.ns * share, np.maximum(times.origins, INTERPOLATED).astype(np.uint8))

    def light(self, phase: str, batch: int) -> Callable:
        """Return the speed of light and the shortest time, of launches, at any length."""
        own = self._own_light(phase, batch)
        shortest_ns = min((curve.ns[0] for curve in self.curves(phase).get(batch, {}).values()), default=0.0)
        return lambda site, lengths: shortest_ns + own(site, lengths)

    def behind_prefixes(self) -> Chunks | None:
        """Return chunks of prompts measured behind prefixes.

        None: there are none with these heads.
        Tables of MiniMax's attention have one prefix, of 128 tokens.
        """
        if self.is_scaled or not self.curves(CONTEXT):
            return None
        heads = self._part.num_heads
        curves = prefix_curves(self._database, self.table(CONTEXT), self._block, heads, self._kv_dtype)
        light = behind_light(self._database, self._block.of_heads(heads), self._element_bytes)
        return Chunks(curves, lambda batch, lengths: self.times(CONTEXT, self._batch(batch), lengths).ns * (
            batch / self._batch(batch)), light) if curves else None

    def _batch(self, batch: int) -> int:
        """Return the largest measured batch size of prompts up to a power of two."""
        return next(size for size in (batch >> i for i in range(batch.bit_length())) if size in self.curves(CONTEXT))

    def _read(self, phase: str) -> dict[int, dict]:
        if not self._is_sound():
            return {}
        found = rests(self._database, self.table(phase), phase, self._block,
                      lambda batch: self._own_light(phase, batch), kv_cache_dtype=self._kv_dtype)
        reader = READERS.get(self.kind) if phase == GENERATION and found else None
        return self._longer(found, reader) if reader else found

    def _is_sound(self) -> bool:
        """Return whether the decodes of a table, and so its kernels, serve; if not, add a note."""
        columns = self._database.columns(self.table(GENERATION))
        if columns is None:
            return False
        floor_ns = float(columns["latency_ms"].min()) * 1e6
        is_sound = floor_ns <= SLOWEST_DECODE_NS and (default(columns, "kernel_source", "") != UNSOUND_KERNEL).any()
        if not is_sound:
            note = (f"{self._database.files[self.table(GENERATION)][0]}: decodes take {floor_ns / 1e3:.0f} us at "
                    f"least, up to {columns['latency_ms'].max():.0f} ms: timed without a sparse kernel, and not used")
            self._database.notes += [note] if note not in self._database.notes else []
        return is_sound

    def _own_light(self, phase: str, batch: int) -> Callable:
        return passes_light(self._database, self._block.of_heads, self._element_bytes, phase, batch)

    def _longer(self, found: dict[int, dict], reader: str) -> dict[int, dict]:
        """Return decodes with points beyond the blocks: the growth of the kernel that reads the context."""
        columns = self._database.columns(reader)
        if columns is None:
            return found
        kernels = self._database.by_batch(columns, GENERATION, ("num_heads",), isl=1.0)
        return {batch: {heads: _grown(curve, *_only(kernels.get(batch, {})), self._growth(reader, batch, heads))
                        for heads, curve in curves.items()} for batch, curves in found.items()}

    def _growth(self, reader: str, batch: int, heads: tuple) -> Callable:
        """Return a factor on the growth of a kernel between two lengths: that of the heads, for attention."""
        if reader != READERS["dsv4_hca"]:
            return lambda begin, ends: 1.0
        light = self._own_light(GENERATION, batch)
        return lambda begin, ends: (light(heads, ends) - light(heads, begin)) / (
            light((64.0,), ends) - light((64.0,), begin))


def block_of(part) -> tuple[str, Block | None]:
    """Return the prefix of the tables of a part, and a model with equal attention.

    None: the tables have no such model.
    """
    kind = "msa" if part.price_key == "msa" else "dsv4_csa" if part.indexer else "dsv4_hca"
    asked = replace(part, ratio=HCA_RATIO) if kind == "dsv4_hca" and part.ratio == 0 else part
    alike = [block for name, block in KNOWN if name == kind and _core(block.of_heads(part.num_heads)) == _core(asked)]
    alike.sort(key=lambda block: kind != "msa" and block.of_heads(part.num_heads).query_rank != part.query_rank)
    return kind, alike[0] if alike else None


def _core(part) -> tuple:
    """Return the sizes that attention beyond products depends on, heads excluded."""
    if part.price_key == "msa":
        return (part.num_kv_heads, part.head_dim, part.value_dim, part.index_heads, part.index_head_dim,
                part.sparse_block, part.top_k_blocks)
    return part.head_dim, part.rope_head_dim, part.window, part.ratio, part.indexer


def _only(curves: dict[tuple, Curve]) -> tuple:
    return next(iter(curves.values()), None),


def _grown(curve: Curve, kernel: Curve | None, factor: Callable) -> Curve:
    """Return a curve with the points of a kernel beyond its end."""
    last = curve.sizes[-1]
    if kernel is None or kernel.sizes[0] > last or kernel.sizes[-1] <= last:
        return curve
    beyond = kernel.sizes > last
    begin_ns = np.interp(last, kernel.sizes, kernel.ns)
    grown = np.maximum(kernel.ns[beyond] - begin_ns, 0.0) * factor(last, kernel.sizes[beyond])
    return Curve(np.append(curve.sizes, kernel.sizes[beyond]), np.append(curve.ns, curve.ns[-1] + grown))
