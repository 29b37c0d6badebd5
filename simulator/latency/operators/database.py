"""A database of operator times: selection of the rows for each lookup.

Traps of aiconfigurator's tables: message sizes of collectives count elements. Points faster than memory ran from a
cache, e.g. 12 % of the decodes on L40S with its 96 MB, up to three times too fast; they are raised to memory's
bandwidth. All-reduces inside and outside a graph have separate rows.

Other kinds of table have files of their own; README.md lists them.
"""
from collections.abc import Callable
from pathlib import Path

import numpy as np

from simulator.domain.hardware_spec import AcceleratorSpec
from simulator.errors import InputErrors
from simulator.latency.operators import prices
from simulator.latency.operators.cache import columns_of
from simulator.latency.operators.curves import EXTRAPOLATED, SPIKE, Curve, Times, along, at_site, curves_by_site
from simulator.latency.operators.expert_tables import ExpertTables
from simulator.latency.operators.files import find_tables, framework_of, other_card_note, version_of
from simulator.latency.operators.fused_norms import TABLE
from simulator.latency.operators.product_formats import STAND_INS
from simulator.latency.operators.products import SLOWEST_GRAPH_FLOOR_NS, ProductTables
from simulator.latency.operators.profiles import read_profile
from simulator.latency.operators.rows import (
    NEEDED,
    default,
    formats,
    measured_ranges,
    rows_where,
)
from simulator.latency.operators.versions import is_vllm, of_versions

NCCL_NAMES = {"all_to_all": "alltoall"}
UNNAMED = (0.0,)                # elements of operators in a table of one model


class Database:
    """The tables of one system, read at first use.

    Parameters
    ----------
    parameters : OperatorsParameters
    accelerator : AcceleratorSpec
        Its peak rates are the speed of light.
    deployment : Deployment
        Required by a profile of LLMServingSim or Frontier, which is of one model.
    files : dict
        Files of each table, the newest first; None: the files that `parameters` name.
    """

    def __init__(self, parameters, accelerator: AcceleratorSpec, deployment=None, files=None):
        self.notes: list[str] = []              # notes for people on the tables
        self.remade: list[str] = []             # notes on damaged conversions, for this run only
        self.opened: dict[str, str] = {}        # path -> SHA-256
        self._profile, self._profile_digest = {}, ""
        if files is None and parameters.path is not None and deployment:
            folder = Path(parameters.path)
            self._profile, self._profile_digest, self.opened = read_profile(
                folder, deployment, parameters, self.remade)
        self.files: dict[str, list[Path]] = files or {}
        if files is None and not self._profile:
            found = find_tables(parameters.path, parameters.system, accelerator.name, parameters.framework)
            self.files, self.notes = of_versions(found, parameters.table_version)
            self.notes += other_card_note(parameters.path, parameters.system, accelerator.name)
        self.used: dict[str, dict] = {}         # table -> file, version, sha256
        self.spikes: list[tuple] = []           # points left out: (site, size)
        self.cached: dict[str, tuple] = {}      # table -> (points faster than memory, number of points)
        self._parameters = parameters
        self._path, self._cache_directory = str(parameters.path), parameters.cache_directory
        self._accelerator = accelerator
        self.node_size = 4 if accelerator.name in ("gb200", "gb300") else 8     # accelerators of a node, when measured
        self.is_of_vllm, self.is_of_trtllm = is_vllm(parameters), parameters.framework == "trtllm"
        self.bytes_per_ns = accelerator.memory_bandwidth_bytes_per_s * 1e-9
        self._sites: dict[tuple, dict] = {}
        self.product_tables = ProductTables(self, parameters)
        has_ranks = deployment is not None and deployment.parallelism.token_ranks > 1
        self.expert_tables = ExpertTables(self, parameters, accelerator, has_ranks)

    # ---- reading

    def columns(self, table: str, is_usable: Callable[[dict], bool] = lambda columns: True,
                alias: str = "") -> dict | None:
        """Return the columns of the newest usable version of a table; None: there is none.

        alias : name of the part of the table in the provenance, where parts may be of several files.
        """
        if table in self._profile:
            self.used[table] = {"file": self._path, "version": "", "sha256": self._profile_digest,
                                "measured": measured_ranges(self._profile[table])}
            return self._profile[table]
        for path in self.files.get(table, ()):
            columns, digest = self._columns_of(path)
            lacking = [f"{path}:1: {name}: no such column; found {', '.join(sorted(columns))}"
                       for name in NEEDED[table] if name not in columns]
            if lacking:
                raise InputErrors(lacking)
            if is_usable(columns):
                whose = {"framework": framework_of(path)} if framework_of(path) else {}
                known = self.used.get(alias or table, {})
                kernels = {"kernels": known["kernels"]} if "kernels" in known else {}
                self.used[alias or table] = {"file": str(path), "version": version_of(path), "sha256": digest,
                                    "measured": measured_ranges(columns)} | whose | kernels
                return columns
        return None

    def _columns_of(self, path):
        key = ("file", path)
        if key not in self._sites:
            self._sites[key] = columns_of(path, self._cache_directory, self.remade)
            self.opened[str(path)] = self._sites[key][1]
        return self._sites[key]

    def curves(self, key: tuple, read: Callable):
        """Return the result of `read`, which is called once per key."""
        if key not in self._sites:
            self._sites[key] = read()
        return self._sites[key]

    def ask(self, table: str, curves: dict[tuple, Curve], site: tuple, sizes: np.ndarray, light_ns: Callable,
            is_root: bool = False) -> Times | None:
        """Return the times of a site of `table`; None: no site near it was measured."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return at_site(curves, tuple(map(float, site)), sizes, light_ns, is_root)

    def pick(self, table: str, columns: dict, kept: np.ndarray) -> dict:
        """Return some rows of a table, and record the kernels that were measured."""
        rows = rows_where(columns, kept)
        if "kernel_source" in rows and table in self.used:
            names = {*self.used[table].get("kernels", ()), *np.unique(rows["kernel_source"]).tolist()}
            self.used[table]["kernels"] = sorted(names)
        return rows

    # ---- notifications for a subclass that records lookups, see errors.py

    def hear(self, operator: str, times: Times, lookup: tuple | None = None) -> None:
        """Receive the operator for which times were looked up.

        lookup : table, curves, site and speed of light, if none of the methods below was called.
        """

    def hear_formula(self, operator: str) -> None:
        """Receive an operator priced by `small_ns`."""

    def hear_attention(self, operator: str, kind) -> None:
        """Receive the layers of an attention operator; `kind.lookups` has the curves."""

    # ---- matrix products, and operators between them

    def gemm(self, dtype: str, n: int, k: int, tokens: np.ndarray) -> Times | None:
        """Return the times of (tokens, k) x (k, n); None: not measured."""
        return self.product_tables.times(dtype, n, k, tokens)

    def gemm_like(self, dtype: str, n: int, k: int, tokens: np.ndarray) -> Times | None:
        """Return the times of a product, perhaps of a format with equal kernels.

        The latter are marked as extrapolated.
        """
        times, other = self.gemm(dtype, n, k, tokens), STAND_INS.get(dtype)
        if times is not None or other is None:
            return times
        times = self.gemm(other, n, k, tokens)
        return times and Times(times.ns, np.full(len(tokens), EXTRAPOLATED, dtype=np.uint8))

    def flops_per_ns(self, dtype: str) -> float:
        """Return the peak rate of products in a format."""
        return self._accelerator.flops_per_s(dtype) * 1e-9

    def small_ns(self, bytes_per_row: float, rows: np.ndarray, kernels: int = 1) -> np.ndarray:
        """Return the time of operators between products, by the bytes they move."""
        bandwidth = self.bytes_per_ns * self._parameters.memory_efficiency
        return rows * (bytes_per_row / bandwidth) + kernels * self._parameters.kernel_latency_us * 1e3

    def small(self, name: str, elements: float, tokens: np.ndarray) -> Times | None:
        """Return the times of one operator between products; None: not measured.

        elements : elements moved per token. Tables without this column are of one model, and hold its operators.
        """
        curves = self.small_curves(name)
        if UNNAMED in curves:
            return along(curves[UNNAMED], tokens, lambda at: at)
        return at_site(curves, (float(elements),), tokens, lambda site, at: np.maximum(site[0] * at, 1.0))

    def small_curves(self, name: str) -> dict[tuple, Curve]:
        """Return the curves over tokens of an operator between products, by elements."""
        return self.curves(("small",), self._read_small).get(name, {})

    def _read_small(self) -> dict[str, dict[tuple, Curve]]:
        columns = self.columns("small")
        if columns is None:
            return {}
        found = {}
        columns = dict(columns, elements=default(columns, "elements", *UNNAMED))
        for (name, elements), curve in self.split(columns, ("operator", "elements"), "num_tokens").items():
            found.setdefault(name, {})[elements,] = curve
        return found

    def quantizing(self, width: float, tokens: np.ndarray) -> Times | None:
        """Return the time to convert `width` elements a token to fp8; None: not measured."""
        return at_site(self.quantizing_curves(), (float(width),), tokens,
                       lambda site, at: 3 * at * site[0] / self.bytes_per_ns)

    def quantizing_curves(self) -> dict[tuple, Curve]:
        """Return the curves over tokens of converting elements to fp8, by their number."""
        return self.curves(("scale_matrix",), self._read_quantizing)

    def _read_quantizing(self) -> dict[tuple, Curve]:
        columns = self.columns("scale_matrix")
        return {} if columns is None else self.split(columns, ("k",), "m")

    # ---- attention

    def attention_curves(self, phase: str, kv_dtype: str, window: int) -> dict[int, dict]:
        """Return by batch size the curves of a phase, by (heads, KV heads, head_dim).

        context: over the tokens of each prompt. generation: over tokens in the KV cache after the step.
        """
        return self.curves((phase, kv_dtype, window), lambda: self._read_attention(phase, kv_dtype, window))

    def _read_attention(self, phase: str, kv_dtype: str, window: int) -> dict[int, dict]:
        columns = self.columns(f"{phase}_attention")
        if columns is None:
            return {}
        required = {"step": 0.0} if phase == "context" else {}
        found = self.by_batch(columns, phase, ("num_heads", "num_key_value_heads", "head_dim"), kv_cache_dtype=kv_dtype,
                              window_size=float(window), **required)
        if phase == "context":                  # its keys and values were just written, so they are cached
            return found
        token_bytes = 2 if kv_dtype == "fp8" else 4
        return {batch: self.from_memory(
            f"{kv_dtype} decodes", curves,
            lambda site, length, batch=batch: batch * (np.minimum(length, window) if window else length)
            * site[1] * site[2] * token_bytes) for batch, curves in found.items()}

    def attention(self, phase: str, batch: int, part, kv_dtype: str, window: int, lengths: np.ndarray) -> Times | None:
        """Return the times of a measured batch size; None: no similar heads were measured.

        part : MultiHeadAttention, as one rank holds it.
        """
        curves = self.attention_curves(phase, kv_dtype, window).get(batch, {})
        site = (float(part.num_heads), float(part.num_kv_heads), float(part.head_dim))
        return at_site(curves, site, lengths, self.attention_light(phase, batch, kv_dtype, window),
                       is_root=phase == "context")

    def attention_light(self, phase: str, batch: int, kv_dtype: str, window: int) -> Callable:
        """Return the speed of light: 4 FLOPs an element of each pair; KV moved."""
        flops_per_ns = self.flops_per_ns("bfloat16")
        kv_bytes = 1 if kv_dtype == "fp8" else 2

        def light_ns(site, length):
            heads, kv_heads, head_dim = site
            seen = np.minimum(length, window) if window else length
            queries = length if phase == "context" else 1.0
            pairs = seen * (seen + 1) / 2 + (length - seen) * seen if phase == "context" else seen
            moved = 4 * queries * heads + 2 * kv_bytes * (length if phase == "context" else seen) * kv_heads
            return batch * head_dim * np.maximum(4 * pairs * heads / flops_per_ns, moved / self.bytes_per_ns)
        return light_ns

    def mixed_curves(self) -> dict[int, Curve]:
        """Return the curves of decodes beside prompts, by sequences.

        Over tokens in the KV cache after the step.
        """
        return self.curves(("mixed",), self._read_mixed)

    def _read_mixed(self) -> dict[int, Curve]:
        columns = self.columns("mixed_attention")
        if columns is None:
            return {}
        columns = dict(columns, kv=columns["step"] + 1)
        return {int(batch): curve for (batch,), curve in self.split(columns, ("batch_size",), "kv").items()}

    def is_from_graph(self, columns: dict, table: str) -> bool:
        """Return whether a table was replayed from a CUDA graph; if not, add a note."""
        floor_ns = float(columns["latency_ms"].min()) * 1e6
        if floor_ns > SLOWEST_GRAPH_FLOOR_NS:
            self.notes.append(f"{self.files[table][0]}: all rows take {floor_ns / 1e3:.0f} us at least: they were "
                              f"timed as launched by the host, and are not used")
        return floor_ns <= SLOWEST_GRAPH_FLOOR_NS

    # ---- experts

    def moe(self, dtype: str, site: tuple, tokens: np.ndarray) -> Times | None:
        """Return the times of the routed experts on one rank; None: not measured."""
        return self.expert_tables.times(dtype, site, tokens)

    # ---- collectives

    def collective(self, kind: str, ranks: int, num_bytes: np.ndarray, is_graph: bool) -> Times | None:
        """Return the times of a collective in one node; None: not measured.

        Messages below the smallest measured one take as long as that: latency is all there is. kind : or the table of
        fused_norms.py. num_bytes : counted as in collective/base.pxd.
        """
        curve = self.collective_curves(kind, is_graph).get((float(ranks),))
        if curve is None:
            return None
        return along(curve, np.maximum(num_bytes, curve.sizes[0]), lambda at: at * 1.0)

    def collective_curves(self, kind: str, is_graph: bool) -> dict[tuple, Curve]:
        """Return the curves over bytes of a collective, by (ranks,)."""
        return self.curves(("collective", kind, is_graph), lambda: self._read_collective(kind, is_graph))

    def _read_collective(self, kind: str, is_graph: bool) -> dict[tuple, Curve]:
        """Read vLLM's own all-reduce, and NCCL, or Intel's oneCCL, for all other collectives."""
        if kind == TABLE:
            columns = self.columns("custom_allreduce" if self.is_of_trtllm else TABLE)
            return {} if columns is None else self._messages(columns, np.full(len(columns["latency_ms"]), True))
        found = {}
        library = "oneccl" if "oneccl" in self.files and "nccl" not in self.files else "nccl"
        columns = self.columns(library)
        if columns is not None:
            kind = NCCL_NAMES.get(kind, kind)
            name = columns["op_name"] if "op_name" in columns else default(columns, "collective", kind)
            found |= self._messages(columns, (name == kind) & (formats(columns, "nccl_dtype") == "half"))
        columns = self.columns("custom_allreduce") if kind == "all_reduce" else None
        if columns is not None:
            ending = "_graph" if is_graph else "_eager"
            found |= self._messages(columns, np.char.endswith(default(columns, "backend", ending), ending))
        return found


    def _messages(self, columns: dict, kept: np.ndarray) -> dict[tuple, Curve]:
        """Return curves over bytes by group; all rows kept are of 16-bit elements."""
        rows = rows_where(columns, kept)
        rows["num_bytes"] = rows["message_size"] * 2.0
        return self.split(rows, ("num_gpus",), "num_bytes")

    # ---- curves

    def by_batch(self, columns: dict, phase: str, site: tuple[str, ...], **required) -> dict[int, dict]:
        """Return attention's curves by batch size and site.

        required : required values of columns. A missing column counts as equal to the value; a missing column of
        formats, as bfloat16.
        """
        kept = np.full(len(columns["latency_ms"]), True)
        for name, value in required.items():
            kept &= (formats(columns, name) if name.endswith("_dtype") else default(columns, name, value)) == value
        rows = rows_where(columns, kept)
        rows["kv"] = rows["isl"] if phase == "context" else rows["step"] + 1
        found = {}
        for (batch, *heads), curve in self.split(rows, ("batch_size", *site), "kv").items():
            found.setdefault(int(batch), {})[tuple(heads)] = curve
        return found

    def from_memory(self, what: str, curves: dict[tuple, Curve], num_bytes: Callable) -> dict[tuple, Curve]:
        """Return curves raised to the time of reading memory, and count the points.

        Repeated measurements find small data in a cache; between two real iterations other weights replace it there.
        """
        raised = {}
        if prices.MEMORY_FLOOR in self._parameters.without:
            return curves
        for site, curve in curves.items():
            floor_ns = num_bytes(site, curve.sizes) / self.bytes_per_ns
            raised[site] = Curve(curve.sizes, np.maximum(curve.ns, floor_ns))
            count, total = self.cached.get(what, (0, 0))
            self.cached[what] = count + int((curve.ns < floor_ns).sum()), total + len(curve.ns)
        return raised

    def split(self, rows: dict, site: tuple[str, ...], size: str, keeps_all: bool = False) -> dict[tuple, Curve]:
        """Return the curves of some rows, and record the points left out.

        keeps_all : of times that may be 0, no point is left out.
        """
        return curves_by_site(rows, site, size, self.spikes, np.inf if keeps_all else SPIKE)
