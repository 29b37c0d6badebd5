"""Matrix products in tables of operators: their curves, and which rows are sound.

Rows of fp8_block products that were launched by the host take 60 us at least and are refused (vLLM 0.24.0; 0.19.0 is
sound): a kernel in a CUDA graph takes less than 10 us. For points that took far longer than all around them see
outliers.py, for long products `sustained`.
"""
from collections.abc import Callable

import numpy as np

from simulator.latency.operators import prices
from simulator.latency.operators.curves import Curve, Times, at_site
from simulator.latency.operators.outliers import FACTOR, without_outliers
from simulator.latency.operators.rows import GEMM_BITS, MATMUL_FORMATS, formats, rows_where
from simulator.latency.operators.scales import scale_times

# The fastest product of a format takes a few microseconds when replayed from a CUDA graph, 13 to 60 launched by the
# host; see the head of this file.
SLOWEST_GRAPH_FLOOR_NS = 15_000.0
LONG_PRODUCT, LONGEST_PRODUCT = 4096, 16384             # tokens, see `sustained`
MANY = 0.01                     # share of points left out as outliers that gives a note


class ProductTables:
    """The products in the tables of one system.

    Parameters
    ----------
    database : Database
    parameters : OperatorsParameters
    """

    def __init__(self, database, parameters):
        self._database, self._without = database, parameters.without

    def times(self, dtype: str, n: int, k: int, tokens: np.ndarray) -> Times | None:
        """Return the times of (tokens, k) x (k, n); None: not measured."""
        return at_site(self.curves(dtype), (float(n), float(k)), tokens, self.light(dtype), is_held=True)

    def curves(self, dtype: str) -> dict[tuple, Curve]:
        """Return the curves over m of products in a format, by (n, k)."""
        return self._database.curves(("gemm", dtype), lambda: self._read(dtype))

    def light(self, dtype: str) -> Callable:
        """Return the speed of light: 2 m n k FLOPs; weights and activations moved."""
        flops_per_ns = self._database.flops_per_ns(MATMUL_FORMATS[dtype])
        weight_bytes, bytes_per_ns = GEMM_BITS[dtype] / 8, self._database.bytes_per_ns

        def light_ns(site, m):
            n, k = site
            return np.maximum(2 * m * n * k / flops_per_ns, (n * k * weight_bytes + 2 * m * (n + k)) / bytes_per_ns)
        return light_ns

    def _read(self, dtype: str) -> dict[tuple, Curve]:
        columns = self._sound(dtype)
        if columns is None:
            return {}
        curves = self._database.split(rows_where(columns, formats(columns, "gemm_dtype") == dtype), ("n", "k"), "m")
        if prices.OUTLIERS not in self._without:
            curves = self._cleared(dtype, curves)
        if prices.LASTING_RATE not in self._without:
            curves = {site: sustained(curve) for site, curve in curves.items()}
        weight_bytes = GEMM_BITS[dtype] / 8
        return self._database.from_memory(f"{dtype} products", curves,
                                          lambda site, m: site[0] * site[1] * weight_bytes)

    def _sound(self, dtype: str) -> dict | None:
        """Return the newest table with rows of a format that were not launched by the host; None: there is none."""
        refused, database = [], self._database

        def is_usable(columns):
            ns = columns["latency_ms"][formats(columns, "gemm_dtype") == dtype] * 1e6
            is_sound = len(ns) > 0 and (ns.min() <= SLOWEST_GRAPH_FLOOR_NS or "timing" in columns)
            if len(ns) and not is_sound:
                refused.append(float(ns.min()))
            return is_sound

        columns = database.columns("gemm", is_usable)
        if columns is None and refused:
            database.notes.append(f"the {dtype} products of {database.files['gemm'][0]} take {refused[0] / 1e3:.0f} us "
                                  f"at least: they were timed as launched by the host, and are not used")
        return columns

    def _cleared(self, dtype: str, curves: dict[tuple, Curve]) -> dict[tuple, Curve]:
        total = sum(len(curve.sizes) for curve in curves.values())
        curves, count = without_outliers(curves)
        if count > MANY * total:
            self._database.notes.append(
                f"{count} of {total} measured {dtype} products take over {FACTOR:g} times as long as the next larger "
                f"one and as the shapes beside them: they are taken as measurement errors, and left out")
        return curves


def sustained(curve: Curve) -> Curve:
    """Return a product's curve with long products at the sustained rate.

    Within milliseconds of full load an accelerator falls to the clocks that its power limit allows. Rows of a few
    thousand tokens were measured in less (B200, fp8: 2,610 TFLOP/s at 2,048 tokens, 2,220 at 32,768; H100, fp8: 1,400
    at 8,192, 1,100 at 16,384), and an iteration of prompts lasts longer than that. So from LONG_PRODUCT tokens on, the
    time per token is at least the mean over products of LONGEST_PRODUCT tokens and more.
    """
    is_longest, is_long = curve.sizes >= LONGEST_PRODUCT, curve.sizes >= LONG_PRODUCT
    if not is_longest.any():
        return curve
    token_ns = float(np.mean(curve.ns[is_longest] / curve.sizes[is_longest]))
    return Curve(curve.sizes, np.where(is_long & ~is_longest, np.maximum(curve.ns, curve.sizes * token_ns), curve.ns))


def with_fixed_scales(database, times: Times, k: float, rows: np.ndarray, light_ns: np.ndarray) -> Times:
    """Return fp8 products with fixed scales, from those that find them first.

    TensorRT-LLM's rows were timed with scales that a kernel finds for each batch (floor 14.5 us on H200 and B200, 4 us
    in bfloat16); its checkpoints in fp8 fix them. `computescale` has that kernel's time, 7 to 8.5 us up to a few
    hundred rows. Source of the rule: aiconfigurator-core 0.12.0, sdk/operations/gemm.py, mode fp8_static.

    light_ns : speed of light at `rows`, the least result.
    """
    scales = scale_times(database, k, rows)
    if scales is None:
        return times
    return Times(np.maximum(times.ns - scales.ns, light_ns), np.maximum(times.origins, scales.origins))
