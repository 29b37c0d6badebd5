"""A database of operator times: which rows answer which question.

Traps of aiconfigurator's tables: message sizes of collectives count elements. Rows of fp8_block products that were
launched by the host take 60 us at least and are refused (vLLM 0.24.0; 0.19.0 is sound): a kernel in a CUDA graph takes
less than 10 us. All-reduces inside a graph and outside of one have rows of their own.
"""
from collections.abc import Callable
from pathlib import Path

import numpy as np

from simulator.domain.hardware_spec import AcceleratorSpec
from simulator.errors import InputErrors
from simulator.latency.operator_cache import columns_of, digest_of
from simulator.latency.operator_curves import Curve, Times, along, at_site, curves_by_site
from simulator.latency.operator_files import find_tables, version_of
from simulator.latency.operator_llmservingsim import profile_files, read_profile

GEMM_BITS = {"bfloat16": 16, "fp8": 8, "fp8_block": 8, "nvfp4": 4.5, "int4_wo": 4.5, "w4a16_mxfp4": 4.25}
MATMUL_FORMATS = {"bfloat16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4", "int4_wo": "int4",
                  "w4a16_mxfp4": "int4"}
# Columns that tell rows apart; others may be left out where all rows hold the usual value.
NEEDED = {
    "gemm": ("m", "n", "k"), "moe": ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts"),
    "context_attention": ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim"),
    "generation_attention": ("batch_size", "step", "num_heads", "num_key_value_heads", "head_dim"),
    "context_mla": ("batch_size", "isl", "num_heads"), "generation_mla": ("batch_size", "step", "num_heads"),
    "gdn": ("kernel_source", "phase", "batch_size", "seq_len", "num_k_heads", "num_v_heads"),
    "custom_allreduce": ("num_gpus", "message_size"), "nccl": ("num_gpus", "message_size")}
LATENT_WIDTHS = (512, 64, 128, 128)     # DeepSeek-V2 and V3: latent, rotary, key without position, value
# The fastest product of a format takes a few microseconds when replayed from a CUDA graph, 13 to 60 launched by the
# host; see the head of this file.
SLOWEST_GRAPH_FLOOR_NS = 15_000.0


class Database:
    """The tables of one system, read when first asked for.

    Parameters
    ----------
    parameters : OperatorsParameters
    accelerator : AcceleratorSpec
        Its peak rates are the speed of light.
    deployment : Deployment
        Needed by a profile of LLMServingSim, which is of one model.
    """

    def __init__(self, parameters, accelerator: AcceleratorSpec, deployment=None):
        self._profile = {}
        profile = profile_files(Path(parameters.path)) if parameters.path is not None and deployment else {}
        if profile:
            self._profile, self.files = read_profile(profile, deployment), {}
        else:
            self.files = find_tables(parameters.path, parameters.system, accelerator.name, parameters.framework)
        self.used: dict[str, dict] = {}         # table -> file, version, sha256
        self.notes: list[str] = []              # what people should know
        self.spikes: list[tuple] = []           # points left out: (site, size)
        self._cache_directory = parameters.cache_directory
        self._accelerator = accelerator
        self._bytes_per_ns = accelerator.memory_bandwidth_bytes_per_s * 1e-9
        self._sites: dict[tuple, dict] = {}

    # ---- reading

    def columns(self, table: str, is_usable: Callable[[dict], bool] = lambda columns: True) -> dict | None:
        """Return the columns of the newest usable version of a table; None: there is none."""
        if table in self._profile:
            columns, path = self._profile[table]
            self.used[table] = {"file": str(path), "version": "", "sha256": digest_of(path)}
            return columns
        for path in self.files.get(table, ()):
            columns, digest = self._columns_of(path)
            lacking = [f"{path}:1: {name}: no such column; found {', '.join(sorted(columns))}"
                       for name in NEEDED[table] if name not in columns]
            if lacking:
                raise InputErrors(lacking)
            if is_usable(columns):
                self.used[table] = {"file": str(path), "version": version_of(path), "sha256": digest}
                return columns
        return None

    def _columns_of(self, path):
        key = ("file", path)
        if key not in self._sites:
            self._sites[key] = columns_of(path, self._cache_directory)
        return self._sites[key]

    def _curves(self, key: tuple, read: Callable):
        """Return what `read` returns, read once."""
        if key not in self._sites:
            self._sites[key] = read()
        return self._sites[key]

    # ---- matrix products

    def gemm_curves(self, dtype: str) -> dict[tuple, Curve]:
        """Return the curves over m of products in a format, by (n, k)."""
        return self._curves(("gemm", dtype), lambda: self._read_gemm(dtype))

    def _read_gemm(self, dtype: str) -> dict[tuple, Curve]:
        refused = []

        def is_usable(columns):
            ns = columns["latency_ms"][_format(columns, "gemm_dtype") == dtype] * 1e6
            if len(ns) and ns.min() > SLOWEST_GRAPH_FLOOR_NS:
                refused.append(float(ns.min()))
            return len(ns) > 0 and ns.min() <= SLOWEST_GRAPH_FLOOR_NS

        columns = self.columns("gemm", is_usable)
        if columns is None:
            if refused:
                self.notes.append(f"the {dtype} products of {self.files['gemm'][0]} take {refused[0] / 1e3:.0f} us at "
                                  f"least: they were timed as launched by the host, and are not used")
            return {}
        return self._split(_rows(columns, _format(columns, "gemm_dtype") == dtype), ("n", "k"), "m")

    def gemm(self, dtype: str, n: int, k: int, tokens: np.ndarray) -> Times | None:
        """Return the times of (tokens, k) x (k, n); None: not measured."""
        return at_site(self.gemm_curves(dtype), (float(n), float(k)), tokens, self.gemm_light(dtype), is_held=True)

    def gemm_light(self, dtype: str) -> Callable:
        """Return the speed of light: 2 m n k FLOPs; weights and activations moved."""
        flops_per_ns = self._accelerator.flops_per_s(MATMUL_FORMATS[dtype]) * 1e-9
        weight_bytes = GEMM_BITS[dtype] / 8

        def light_ns(site, m):
            n, k = site
            return np.maximum(2 * m * n * k / flops_per_ns,
                              (n * k * weight_bytes + 2 * m * (n + k)) / self._bytes_per_ns)
        return light_ns

    # ---- attention

    def attention_curves(self, phase: str, kv_dtype: str, window: int) -> dict[int, dict]:
        """Return by batch size the curves of a phase, by (heads, KV heads, head_dim).

        context: over the tokens of each prompt. generation: over tokens in the KV cache after the step.
        """
        return self._curves((phase, kv_dtype, window), lambda: self._read_attention(phase, kv_dtype, window))

    def _read_attention(self, phase: str, kv_dtype: str, window: int) -> dict[int, dict]:
        columns = self.columns(f"{phase}_attention")
        if columns is None:
            return {}
        kept = (_format(columns, "kv_cache_dtype") == kv_dtype) & (_default(columns, "window_size", 0.0) == window)
        if phase == "context":
            kept &= _default(columns, "step", 0.0) == 0
        return self._by_batch(_rows(columns, kept), phase, ("num_heads", "num_key_value_heads", "head_dim"))

    def attention(self, phase: str, batch: int, part, kv_dtype: str, window: int, lengths: np.ndarray) -> Times | None:
        """Return the times of a measured batch size; None: no heads near these.

        part : MultiHeadAttention, as one rank holds it.
        """
        curves = self.attention_curves(phase, kv_dtype, window).get(batch, {})
        site = (float(part.num_heads), float(part.num_kv_heads), float(part.head_dim))
        return at_site(curves, site, lengths, self.attention_light(phase, batch, kv_dtype, window),
                       is_root=phase == "context")

    def attention_light(self, phase: str, batch: int, kv_dtype: str, window: int) -> Callable:
        """Return the speed of light: 4 FLOPs an element of each pair; KV moved."""
        flops_per_ns = self._accelerator.flops_per_s("bfloat16") * 1e-9
        kv_bytes = 1 if kv_dtype == "fp8" else 2

        def light_ns(site, length):
            heads, kv_heads, head_dim = site
            seen = np.minimum(length, window) if window else length
            queries = length if phase == "context" else 1.0
            pairs = seen * (seen + 1) / 2 + (length - seen) * seen if phase == "context" else seen
            moved = 4 * queries * heads + 2 * kv_bytes * (length if phase == "context" else seen) * kv_heads
            return batch * head_dim * np.maximum(4 * pairs * heads / flops_per_ns, moved / self._bytes_per_ns)
        return light_ns

    def latent_curves(self, phase: str, kv_dtype: str) -> dict[int, dict]:
        """Return the same of latent attention, by (heads,), of DeepSeek's widths."""
        return self._curves(("latent", phase, kv_dtype), lambda: self._read_latent(phase, kv_dtype))

    def _read_latent(self, phase: str, kv_dtype: str) -> dict[int, dict]:
        columns = self.columns(f"{phase}_mla", lambda each: self._is_from_graph(each, f"{phase}_mla"))
        if columns is None:
            return {}
        kept = (_format(columns, "kv_cache_dtype") == kv_dtype) & (_format(columns, "mla_dtype") == "bfloat16")
        return self._by_batch(_rows(columns, kept), phase, ("num_heads",))

    def _is_from_graph(self, columns: dict, table: str) -> bool:
        floor_ns = float(columns["latency_ms"].min()) * 1e6
        if floor_ns > SLOWEST_GRAPH_FLOOR_NS:
            self.notes.append(f"{self.files[table][0]}: all rows take {floor_ns / 1e3:.0f} us at least: they were "
                              f"timed as launched by the host, and are not used")
        return floor_ns <= SLOWEST_GRAPH_FLOOR_NS

    def latent_attention(self, phase: str, batch: int, part, kv_dtype: str, lengths: np.ndarray) -> Times | None:
        """Return the times of latent attention, as `attention`; part : LatentAttention."""
        if (part.kv_rank, part.rope_head_dim, part.nope_head_dim, part.value_head_dim) != LATENT_WIDTHS:
            return None
        curves = self.latent_curves(phase, kv_dtype).get(batch, {})
        return at_site(curves, (float(part.num_heads),), lengths, self.latent_light(phase, batch, part, kv_dtype),
                       is_root=phase == "context")

    def latent_light(self, phase: str, batch: int, part, kv_dtype: str) -> Callable:
        """Return its speed of light: prompts on expanded keys, decodes on latents."""
        flops_per_ns = self._accelerator.flops_per_s("bfloat16") * 1e-9
        kv_bytes = (1 if kv_dtype == "fp8" else 2) * part.kv_elements_per_token
        pair_flops = part.flops_per_context_token / part.num_heads
        query_flops = part.decode_flops_per_context_token / part.num_heads

        def light_ns(site, length):
            heads, = site
            if phase == "context":
                moved = 4 * length * heads * (part.head_dim + part.value_head_dim)
                return batch * np.maximum(length * (length + 1) / 2 * heads * pair_flops / flops_per_ns,
                                          moved / self._bytes_per_ns)
            return batch * length * np.maximum(heads * query_flops / flops_per_ns, kv_bytes / self._bytes_per_ns)
        return light_ns

    # ---- recurrences

    def recurrence(self, phase: str, batch: int, part, lengths: np.ndarray) -> Times | None:
        """Return the times of a gated delta rule and its convolution; None: not measured.

        part : GatedDeltaNet, as one rank holds it.
        lengths : context: tokens of each prompt. generation: any, one token is computed whatever came before.
        """
        site = (float(part.num_key_heads), float(part.num_value_heads))
        kernels = self.recurrence_curves(phase, batch, part)
        sizes = lengths if phase == "context" else np.array([float(batch)])
        found = [at_site(curves, site, sizes, lambda heads, size: heads[1] * size) for curves in kernels]
        if not found or None in found:
            return None
        ns, origins = sum(times.ns for times in found), np.max([times.origins for times in found], axis=0)
        return Times(*(np.broadcast_to(values, lengths.shape).copy() for values in (ns, origins)))

    def recurrence_curves(self, phase: str, batch: int, part) -> list[dict[tuple, Curve]]:
        """Return the curves of each kernel by heads.

        context: over tokens of each prompt. generation: over sequences.
        """
        widths = (part.conv_kernel, part.key_head_dim, part.value_head_dim)
        key = ("gdn", phase, batch if phase == "context" else 0, *widths)
        return self._curves(key, lambda: self._read_recurrence(phase, batch, widths))

    def _read_recurrence(self, phase: str, batch: int, widths: tuple) -> list[dict[tuple, Curve]]:
        columns = self.columns("gdn")
        if columns is None:
            return []
        kept = columns["phase"] == phase
        for name, width in zip(("d_conv", "head_k_dim", "head_v_dim"), widths):
            kept &= _default(columns, name, width) == width
        if phase == "context":
            kept &= columns["batch_size"] == batch
        rows, size = _rows(columns, kept), "seq_len" if phase == "context" else "batch_size"
        return [self._split(_rows(rows, rows["kernel_source"] == kernel), ("num_k_heads", "num_v_heads"), size)
                for kernel in np.unique(rows["kernel_source"])]

    # ---- experts

    def moe_curves(self, dtype: str, distribution: str) -> dict[tuple, Curve]:
        """Return the curves over tokens; by hidden, intermediate, chosen, experts, TP, EP."""
        return self._curves(("moe", dtype, distribution), lambda: self._read_moe(dtype, distribution))

    def _read_moe(self, dtype: str, distribution: str) -> dict[tuple, Curve]:
        columns = self.columns("moe")
        if columns is None:
            return {}
        loads = _default(columns, "distribution", "balanced")
        kept = (_format(columns, "moe_dtype") == dtype) & (loads == distribution)
        columns = dict(columns, moe_tp_size=_default(columns, "moe_tp_size", 1.0),
                       moe_ep_size=_default(columns, "moe_ep_size", 1.0))
        site = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
        return self._split(_rows(columns, kept), site, "num_tokens")

    def moe(self, dtype: str, distribution: str, site: tuple, tokens: np.ndarray) -> Times | None:
        """Return the times of the routed experts on one rank; None: not measured."""
        return at_site(self.moe_curves(dtype, distribution), tuple(map(float, site)), tokens, self.moe_light(dtype))

    def moe_light(self, dtype: str) -> Callable:
        """Return the speed of light of gated experts.

        2 FLOPs a weight and token; the weights of distinct experts moved once.
        """
        flops_per_ns = self._accelerator.flops_per_s(MATMUL_FORMATS[dtype]) * 1e-9
        weight_bytes = GEMM_BITS[dtype] / 8

        def light_ns(site, tokens):
            hidden, inter, chosen, experts, tensor, expert = site
            weights = 3 * hidden * inter / tensor
            distinct = experts / expert * (1 - (1 - chosen / experts) ** tokens)
            return np.maximum(2 * tokens * chosen / expert * weights / flops_per_ns,
                              distinct * weights * weight_bytes / self._bytes_per_ns)
        return light_ns

    # ---- collectives

    def collective(self, kind: str, ranks: int, num_bytes: np.ndarray, is_graph: bool) -> Times | None:
        """Return the times of a collective in one node; None: not measured.

        num_bytes : as collective.pxd counts them.
        """
        curve = self.collective_curves(kind, is_graph).get((float(ranks),))
        if curve is None:
            return None
        return along(curve, num_bytes, lambda at: at * 1.0)

    def collective_curves(self, kind: str, is_graph: bool) -> dict[tuple, Curve]:
        """Return the curves over bytes of a collective, by (ranks,)."""
        return self._curves(("collective", kind, is_graph), lambda: self._read_collective(kind, is_graph))

    def _read_collective(self, kind: str, is_graph: bool) -> dict[tuple, Curve]:
        """Read vLLM's own all-reduce, and NCCL for what it does not do."""
        found = {}
        columns = self.columns("nccl")
        if columns is not None:
            name = columns["op_name"] if "op_name" in columns else _default(columns, "collective", kind)
            found |= self._messages(columns, (name == kind) & (_format(columns, "nccl_dtype") == "half"))
        columns = self.columns("custom_allreduce") if kind == "all_reduce" else None
        if columns is not None:
            ending = "_graph" if is_graph else "_eager"
            found |= self._messages(columns, np.char.endswith(_default(columns, "backend", ending), ending))
        return found


    def _messages(self, columns: dict, kept: np.ndarray) -> dict[tuple, Curve]:
        """Return curves over bytes by group; all rows kept are of 16-bit elements."""
        rows = _rows(columns, kept)
        rows["num_bytes"] = rows["message_size"] * 2.0
        return self._split(rows, ("num_gpus",), "num_bytes")

    # ---- curves

    def _by_batch(self, rows: dict, phase: str, site: tuple[str, ...]) -> dict[int, dict]:
        """Return attention's curves by batch size and site."""
        rows["kv"] = rows["isl"] if phase == "context" else rows["step"] + 1
        found = {}
        for (batch, *heads), curve in self._split(rows, ("batch_size", *site), "kv").items():
            found.setdefault(int(batch), {})[tuple(heads)] = curve
        return found

    def _split(self, rows: dict, site: tuple[str, ...], size: str) -> dict[tuple, Curve]:
        """Return the curves of some rows, and remember what was left out of them."""
        return curves_by_site(rows, site, size, self.spikes)


def _rows(columns: dict, kept: np.ndarray) -> dict:
    return {name: values[kept] for name, values in columns.items()}


def _default(columns: dict, name: str, value) -> np.ndarray:
    """Return a column; where it is left out, all rows hold `value`."""
    return columns[name] if name in columns else np.full(len(columns["latency_ms"]), value)


def _format(columns: dict, name: str) -> np.ndarray:
    return _default(columns, name, "half" if name == "nccl_dtype" else "bfloat16")
