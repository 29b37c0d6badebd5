"""Routed experts in tables of operators: choice of the kernel and of its valid rows.

One format may have several kernels, named in the column `kernel_source`. For mxfp4 (gpt-oss), vLLM runs Marlin on
Hopper and on Ada and workstation Blackwell (vllm-project/vllm pull request 27523, issue 31085), and on Blackwell
servers FlashInfer's product with activations of mxfp8. Tables of Hopper hold Marlin for other mixtures only. Then
Marlin's utilisation at an equal number of rows per expert is used, but no time below the tabled time of this mixture
with another kernel, which includes the launches of such a small mixture. Tables of A100 hold Marlin in int4 alone, of
SGLang, which runs vLLM's kernel; both formats have 4 bits and 16-bit activations, and Marlin has 0.26 to 0.49 of peak
at 2,048 tokens there, where the roofline's law of experts would have 0.89.

Rows over several ranks hold the tokens of all: reached_experts.py has those of ranks behind an exchange.

TensorRT-LLM's MoE backend `TRTLLM` runs generated kernels of its own, which FlashInfer carries as `trtllm_*_moe` for
vLLM and SGLang (flashinfer-ai/flashinfer, csrc/trtllm_fused_moe_kernel_launcher.cu). TensorRT-LLM's part of the tables
has them as `moe_torch_flow_min_latency`, in nvfp4 alone: other formats take SGLang's rows.

Rows of a quantised format that take longer than bfloat16 rows of equal site, load and tokens were measured with a
kernel that is not used in serving: 8-bit weights are read in half the time. aiconfigurator's fp8 rows of vLLM 0.24.0 on
H200 take 2.08 ms at 16 tokens, those of 0.19.0 0.32 ms. Such a version is not used. If no other version has the format,
it is priced with the utilisation of bfloat16.
"""
from collections.abc import Callable

import numpy as np

from simulator.domain.hardware_spec import AcceleratorSpec
from simulator.latency.operators.curves import (
    EXTRAPOLATED,
    INTERPOLATED,
    Times,
    along,
    at_site,
    curves_by_site,
    neighbours,
)
from simulator.latency.operators.exchanges import GATHER
from simulator.latency.operators.expert_shares import EVEN, holds_share
from simulator.latency.operators.prices import EXPERT_SHARES
from simulator.latency.operators.reached_experts import ForeignTokens
from simulator.latency.operators.rows import GEMM_BITS, MATMUL_FORMATS, default, formats, rows_where
from simulator.latency.operators.versions import is_before
from simulator.latency.operators.wide_experts import expert_curves, experts_table

SITE = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
# aiconfigurator's default. With it decodes of gpt-oss-120b on H200 are 2 % too short, with even loads 10 % too
# long (61 closed loops, tables of Triton kernels).
SKEWED = "power_law_1.01"
HAS_LAUNCHES = True             # of other mixtures, see curves.py
FEW_TOKENS = 256                # up to this number, reading weights limits experts
MXFP4, MXFP8, INT4 = "w4a16_mxfp4", "w4a8_mxfp4_mxfp8", "int4_wo"
KERNELS = {"marlin": ("marlin",), "triton": ("triton",), "flashinfer": ("flashinfer",),
           "trtllm": ("flashinfer_trtllm", "min_latency")}         # -> parts of `kernel_source`
TABLE, LENT = "moe", "sglang_moe"       # LENT: SGLang's, beside the framework's own
LENT_KERNELS = ("trtllm", "marlin")     # libraries shared by the frameworks
SERVERS_OF_FP4 = ("Blackwell", "Blackwell Ultra")


class ExpertTables:
    """The experts in the tables of one system.

    Parameters
    ----------
    database : Database
    parameters : OperatorsParameters
    accelerator : AcceleratorSpec
    has_ranks : tokens are spread over several ranks, which all2all_backend joins.
    """

    def __init__(self, database, parameters, accelerator: AcceleratorSpec, has_ranks: bool = False):
        self._database, self._accelerator = database, accelerator
        self._is_exchanged = has_ranks and parameters.all2all_backend not in (None, GATHER)
        self._parameters = parameters
        self._load, self._asked = parameters.expert_load, parameters.expert_kernel
        self._wide = experts_table(parameters)
        self._unshared: dict[tuple, set[str]] = {}      # sites left out by expert_shares.py -> kernels in the tables

    def times(self, dtype: str, site: tuple, tokens: np.ndarray) -> Times | None:
        """Return the times of the routed experts on one rank; None: not measured.

        site : hidden size, intermediate size, chosen, experts, TP, EP.
        """
        site, kernel = tuple(map(float, site)), self.kernel(dtype)
        if wide := self.wide_curves(dtype, site):
            return at_site(wide, site, tokens, self.light(dtype), has_launches=HAS_LAUNCHES)
        if kernel == MXFP8:
            found = self._at(MXFP8, None, site, tokens)
            return found or self._at(dtype, None, site, tokens)
        found = self._at(dtype, kernel, site, tokens)
        if kernel is None or site in self.curves(dtype, kernel) or site in self._unshared:
            return found
        return self._borrowed(dtype, kernel, site, tokens) or found or self._at(dtype, None, site, tokens)

    def kernel(self, dtype: str) -> str | None:
        """Return the kernel of a format; None: any kernel in the tables.

        A key of KERNELS, or MXFP8.
        """
        if self._asked != "auto":
            return MXFP8 if self._asked == "w4a8" else self._asked
        if dtype == MXFP4 and self._is_server_of_fp4:
            return MXFP8
        if dtype == MXFP4 and self._database.is_of_vllm:
            return "marlin"
        return "triton" if self._is_of_old_vllm and self._is_server_of_fp4 else None

    @property
    def _is_of_old_vllm(self) -> bool:
        return self._database.is_of_vllm and is_before(self._parameters, "0.15")

    @property
    def _is_server_of_fp4(self) -> bool:
        return self._accelerator.architecture in SERVERS_OF_FP4 and bool(self._accelerator.scaleup_bytes_per_s)

    # ---- curves

    def wide_curves(self, dtype: str, site: tuple) -> dict[tuple, object]:
        """Return the curves of a mixture behind an exchange, by site; empty: none."""
        if self._wide is None:
            return {}
        return expert_curves(self._database, self._wide, dtype, site[:4], self._load or SKEWED)

    def curves(self, dtype: str, kernel: str | None = None, source: str | None = None) -> dict[tuple, object]:
        """Return the curves over tokens of a format, by site; of one kernel, or of all.

        source : of rows, in the tables' own words.
        """
        return self._database.curves(("moe", dtype, self._load, kernel, source),
                                     lambda: self._read(dtype, kernel, source))

    def light(self, dtype: str) -> Callable:
        """Return the speed of light of gated experts.

        2 FLOPs a weight and token; the weights of distinct experts moved once.
        """
        flops_per_ns = self._database.flops_per_ns(MATMUL_FORMATS[dtype])
        weight_bytes = GEMM_BITS[dtype] / 8

        def light_ns(site, tokens):
            hidden, inter, chosen, experts, tensor, expert = site
            weights = 3 * hidden * inter / tensor
            distinct = experts / expert * (1 - (1 - chosen / experts) ** tokens)
            return np.maximum(2 * tokens * chosen / expert * weights / flops_per_ns,
                              distinct * weights * weight_bytes / self._database.bytes_per_ns)
        return light_ns

    def _read(self, dtype: str, kernel: str | None, source: str | None) -> dict[tuple, object]:
        refused = []

        def is_usable(columns):
            if not self._rows_of(columns, dtype, kernel).any():
                return False
            is_slower = self._is_slower_than_plain(columns, dtype, kernel)
            if is_slower:
                refused.append(columns)
            return not is_slower

        table, columns = TABLE, self._database.columns(TABLE, is_usable)
        if columns is None and kernel in LENT_KERNELS:
            table, columns = LENT, self._database.columns(LENT, is_usable)
        if refused:
            self._database.notes.append(
                f"the {dtype} experts of {self._database.files['moe'][0]} take longer than bfloat16 ones: another "
                f"kernel was timed than the one that serves; " + (
                    f"those of {self._database.used['moe']['version']} are used" if columns is not None else
                    "the utilisation of bfloat16 is used"))
        if columns is None:
            return {}
        tensor, expert = (default(columns, name, 1.0) for name in ("moe_tp_size", "moe_ep_size"))
        columns = dict(columns, moe_tp_size=tensor, moe_ep_size=expert)
        has_share = np.ones(len(tensor), dtype=bool)
        if source is not None:
            has_share = columns["kernel_source"] == source
        kept = self._rows_of(columns, dtype, kernel) & has_share
        if EXPERT_SHARES not in self._parameters.without:
            has_share &= self._shared(columns, dtype)
            self._leave_out(columns, kept & ~has_share)
        rows = self._database.pick(table, columns, kept & has_share)
        curves = self._database.split(rows, SITE, "num_tokens")
        if not self._is_exchanged:
            return curves
        even, skewed = (curves_by_site(rows_where(columns, self._rows_of(columns, dtype, kernel, load) & has_share),
                                       SITE, "num_tokens") for load in (EVEN, SKEWED))
        return self._reached(curves, ForeignTokens(even, skewed))

    def _shared(self, columns: dict, dtype: str) -> np.ndarray:
        """Return the mask of the rows with a rank's share of the load. See expert_shares.py."""
        of_format = formats(columns, "moe_dtype") == dtype
        shared = ~of_format
        shared[of_format] = holds_share(rows_where(columns, of_format))
        return shared

    def _leave_out(self, columns: dict, lost: np.ndarray) -> None:
        """Record the sites and kernels of rows without a rank's share."""
        if "kernel_source" in columns:
            rows = rows_where({name: columns[name] for name in (*SITE, "kernel_source")}, lost)
            for *site, name in set(zip(*(values.tolist() for values in rows.values()), strict=True)):
                self._unshared.setdefault(tuple(site), set()).add(name)

    def _reached(self, curves: dict, foreign: ForeignTokens) -> dict[tuple, object]:
        """Return the curves of ranks that get their tokens by an exchange. See reached_experts.py."""
        unknown = [foreign.token_ns(site) is None for site in curves if site[5] > 1]
        if not unknown:
            return curves
        note = (f"experts behind {self._parameters.all2all_backend} were measured with the tokens of all ranks on each "
                "rank: the time of tokens that do not reach a rank is ")
        if all(unknown):
            note += "in the price, as no even loads of one rank and of several show it"
        else:
            note += "left out, by the even loads of one rank and of several" + (
                "; mixtures without such loads are priced with it" * any(unknown))
        if note not in self._database.notes:
            self._database.notes.append(note)
        return {site: foreign.without(curve, site) for site, curve in curves.items()}

    def _rows_of(self, columns: dict, dtype: str, kernel: str | None, load: str | None = None) -> np.ndarray:
        kept = formats(columns, "moe_dtype") == dtype
        kept &= self._is_loaded(default(columns, "distribution", EVEN), kept, load or self._load)
        if kernel is not None and "kernel_source" in columns:
            kept &= np.any([np.char.find(columns["kernel_source"], part) >= 0 for part in KERNELS[kernel]], axis=0)
        return kept

    def _is_loaded(self, loads: np.ndarray, kept: np.ndarray, load: str | None) -> np.ndarray:
        """Return the mask of rows with a load; by default the skewed load, or else the even one."""
        if load is not None:
            return loads == load
        skewed = loads == SKEWED
        return skewed if (skewed & kept).any() else loads == EVEN

    def _is_slower_than_plain(self, columns: dict, dtype: str, kernel: str | None) -> bool:
        """Return whether the median time at few tokens is longer than for bfloat16 at equal sites."""
        if GEMM_BITS[dtype] > 8:
            return False
        plain, found = (self._few(columns, *which) for which in (("bfloat16", None), (dtype, kernel)))
        ratios = [ms / plain[point] for point, ms in found.items() if point in plain]
        return bool(ratios) and float(np.median(ratios)) > 1.0

    def _few(self, columns: dict, dtype: str, kernel: str | None) -> dict[tuple, float]:
        """Return the times of few tokens by site and tokens."""
        kept = self._rows_of(columns, dtype, kernel) & (columns["num_tokens"] <= FEW_TOKENS)
        points = zip(*(columns[name][kept] for name in (*SITE, "num_tokens") if name in columns), strict=True)
        return dict(zip(points, columns["latency_ms"][kept], strict=True))

    # ---- times

    def _at(self, dtype: str, kernel: str | None, site: tuple, tokens: np.ndarray) -> Times | None:
        curves = self.curves(dtype, kernel)
        if site in self._unshared:
            return self._unloaded(dtype, kernel, site, tokens)
        if curves or dtype == "bfloat16":
            return self._near(curves, site, tokens, dtype)
        if GEMM_BITS[dtype] != 8:
            return None
        plain = at_site(self.curves("bfloat16"), site, tokens, self.light("bfloat16"), has_launches=HAS_LAUNCHES)
        return plain and Times(plain.ns * self.light(dtype)(site, tokens) / self.light("bfloat16")(site, tokens),
                               np.full(len(tokens), EXTRAPOLATED, dtype=np.uint8))

    def _near(self, curves: dict, site: tuple, tokens: np.ndarray, dtype: str) -> Times | None:
        found = at_site(curves, site, tokens, self.light(dtype), has_launches=HAS_LAUNCHES)
        return found or self._cut(curves, site, tokens, dtype)

    def _unloaded(self, dtype: str, kernel: str | None, site: tuple, tokens: np.ndarray) -> Times | None:
        """Return the times of the fastest kernel, of which some were measured with more than a rank's share."""
        curves = self.curves(dtype, kernel)
        found = [self._near(self.curves(dtype, kernel, source), site, tokens, dtype)
                 for source in sorted(self._unshared[site])]
        found = [times for times in found if times is not None]
        if site in curves or not found:
            found.append(self._near(curves, site, tokens, dtype))
        if found[0] is None:
            return None
        self._database.notes.append(
            f"experts over {site[5]:.0f} ranks were measured with more than a rank's share of the tokens ("
            f"{', '.join(sorted(self._unshared[site]))}): even loads take as long over two ranks as over one; the "
            f"utilisation of mixtures beside this one, or of one rank, is used")
        ns = np.array([times.ns for times in found])
        fastest = ns.argmin(axis=0)
        return Times(ns.min(axis=0), np.array([times.origins for times in found])[fastest, np.arange(len(tokens))])

    def _cut(self, curves: dict, site: tuple, tokens: np.ndarray, dtype: str) -> Times | None:
        """Return the times of a mixture that was measured on far fewer ranks; None: it was not."""
        alike = {other: curve for other, curve in curves.items() if other[:4] == site[:4]}
        return at_site(alike, site, tokens, self.light(dtype), is_held=True, has_launches=HAS_LAUNCHES)

    def lender(self, dtype: str, kernel: str | None) -> tuple[dict[tuple, object], str]:
        """Return the curves that lend a kernel's utilisation, and their format.

        Marlin's are of int4 where none of mxfp4 were measured.
        """
        curves = self.curves(dtype, kernel)
        if curves or (dtype, kernel) != (MXFP4, "marlin"):
            return curves, dtype
        return self.curves(INT4, kernel), INT4

    def _borrowed(self, dtype: str, kernel: str, site: tuple, tokens: np.ndarray) -> Times | None:
        """Return the times of a kernel measured for other mixtures; None: none with equal TP and EP was."""
        curves, lent = self.lender(dtype, kernel)
        light, light_of_lent = self.light(dtype), self.light(lent)
        spread = {other: curve for other, curve in curves.items() if other[4:] == site[4:]}
        nearest = neighbours({other[:2] for other in spread}, site[:2]) or [(other[:2], 1.0) for other in spread]
        efforts, weights = np.zeros(len(tokens)), 0.0
        for widths, distance in nearest:
            other = min((each for each in spread if each[:2] == widths), key=lambda each: abs(each[3] - site[3]))
            alike = tokens * (site[2] / site[3]) / (other[2] / other[3])        # equal rows per expert
            times = along(spread[other], alike, lambda at, other=other: light_of_lent(other, at))
            efforts += light_of_lent(other, alike) / times.ns / max(distance, 1e-9)
            weights += 1 / max(distance, 1e-9)
        if weights == 0.0:
            return None
        ns = light(site, tokens) * weights / efforts
        own = self._at(dtype, None, site, tokens)
        self._database.notes.append(
            f"{kernel} serves these experts, and was measured for other mixtures only"
            f"{f', in {lent}' if lent != dtype else ''}: its utilisation at as many rows "
            f"an expert" + (", and no time below that of the kernel that was measured for this one" if own else ""))
        ns = np.maximum(ns, own.ns) if own else ns
        return Times(ns, np.full(len(tokens), INTERPOLATED, dtype=np.uint8))
