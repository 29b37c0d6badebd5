"""Leave-one-out errors of operator tables, from the lookups of a composition and the points of their curves.

`Watched` is a database that also records its lookups; the composition reports the operator of each result. An operator
without a table is priced by the roofline, and has the error of the roofline by one share of peak; small operators have
the error of their formula. A substitute (kernels or utilisation of another format) also has the roofline's error, since
it was not measured. Results of a collective model, and recurrences of linear attention by the roofline, have no known
error.
"""
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from simulator.latency.operators.curves import EXTRAPOLATED, ROOFLINE, Times
from simulator.latency.operators.database import Database
from simulator.latency.operators.expert_tables import HAS_LAUNCHES, MXFP8
from simulator.latency.operators.leave_one_out import along_sizes, border_sizes, edge_sizes, grid_sizes, site_sizes
from simulator.latency.roofline.kind_laws import BY_SHARE, kind_error, kind_of, kinds
from simulator.latency.roofline.law_errors import law_error, law_spread
from simulator.latency.roofline.laws import generation_of
from simulator.latency.uncertainty.known_errors import FORMULA
from simulator.latency.uncertainty.spread import OperatorError, Spread, measured_spread, pooled

COMMUNICATION = ("all_reduce", "send_recv", "logits_all_gather", "expert_all_gather", "expert_reduce_scatter",
                 "expert_dispatch", "expert_combine")
PHASES = {"prefill_attention": ("context", "prefill"), "decode_attention": ("generation", "decode")}


class Question(NamedTuple):
    """A lookup: curves of sites, the requested site, its speed of light."""

    table: str
    curves: dict
    site: tuple
    light_ns: Callable
    is_root: bool = False
    has_launches: bool = False

    @property
    def is_measured(self) -> bool:
        """Whether exactly this site was measured."""
        return self.site in self.curves

    def inside(self) -> Spread | None:
        """Return the errors within the measured sizes."""
        if not self.is_measured:
            return measured_spread(site_sizes(self.curves, self.site, self.light_ns, self.is_root, self.has_launches),
                                   f"{self.table}: nearest sites left out")
        sizes = along_sizes(self.curves[self.site], self._light_of_site, self.is_root)
        return measured_spread(sizes, f"{self.table}: inner points left out")

    def outside(self) -> Spread | None:
        """Return the errors beyond the measured sizes."""
        if self.is_measured:
            return measured_spread(edge_sizes(self.curves[self.site], self._light_of_site, self.is_root),
                                   f"{self.table}: end points left out")
        return measured_spread(border_sizes(self.curves, self.site, self.light_ns, self.is_root, self.has_launches),
                               f"{self.table}: sites of the border left out")

    def _light_of_site(self, sizes):
        return self.light_ns(self.site, sizes)


class Watched(Database):
    """A database that computes the error of each operator from the recorded lookups.

    Parameters
    ----------
    parameters : OperatorsParameters
    deployment : Deployment
    """

    def __init__(self, parameters, deployment):
        super().__init__(parameters, deployment.accelerator, deployment)
        self._deployment = deployment
        self._asked: dict[int, tuple[np.ndarray, Question]] = {}        # by identity of the returned times
        self._found: dict[str, dict[object, OperatorError]] = {}        # by operator and lookup

    # ---- recording of lookups

    def ask(self, table, curves, site, sizes, light_ns, is_root=False):
        """Return the times, and record the lookup; as do the methods below."""
        times = super().ask(table, curves, site, sizes, light_ns, is_root)
        return self._remember(times, table, curves, site, light_ns)

    def gemm(self, dtype, n, k, tokens):
        times, tables = super().gemm(dtype, n, k, tokens), self.product_tables
        return self._remember(times, "gemm", tables.curves(dtype), (n, k), tables.light(dtype))

    def small(self, name, elements, tokens):
        times = super().small(name, elements, tokens)
        if times is None:
            return None
        curves = self.small_curves(name)
        site = (float(elements),) if (float(elements),) in curves or len(curves) > 1 else next(iter(curves))
        return self._remember(times, "small", curves, site, lambda at_site, at: np.maximum(at_site[0] * at, at))

    def quantizing(self, width, tokens):
        times = super().quantizing(width, tokens)
        return self._remember(times, "scale_matrix", self.quantizing_curves(), (width,),
                              lambda site, at: at * site[0])

    def moe(self, dtype, site, tokens):
        times, tables = super().moe(dtype, site, tokens), self.expert_tables
        kernel = tables.kernel(dtype)
        if kernel == MXFP8:
            dtype, kernel = (MXFP8 if tables.curves(MXFP8) else dtype), None
        wide = tables.wide_curves(dtype, tuple(map(float, site)))
        curves = wide or tables.lender(dtype, kernel)[0] or tables.curves(dtype)
        return self._remember(times, "moe", curves, site, tables.light(dtype), HAS_LAUNCHES)

    def collective(self, kind, ranks, num_bytes, is_graph):
        times = super().collective(kind, ranks, num_bytes, is_graph)
        return self._remember(times, "custom_allreduce" if kind == "all_reduce" and "custom_allreduce" in self.used
                              else "nccl", self.collective_curves(kind, is_graph), (ranks,), lambda site, at: at)

    def _remember(self, times: Times | None, table: str, curves, site, light_ns, has_launches=False) -> Times | None:
        if times is not None:
            asked = Question(table, curves, tuple(map(float, site)), light_ns, has_launches=has_launches)
            self._asked[id(times.ns)] = times.ns, asked
        return times

    # ---- recording of operators

    def hear(self, operator, times, lookup=None):
        """Record the operator of a result."""
        question = Question(*lookup) if lookup else self._asked.get(id(times.ns), (None, None))[1]
        key = (id(question.curves), question.site) if question else len(self._found.get(operator, ()))
        noted = self._found.setdefault(operator, {})
        if key not in noted:
            noted[key] = self._error(operator, times, question)

    def hear_formula(self, operator):
        """Record that an operator is priced by the formula of small operators."""
        self._found.setdefault(operator, {})["formula"] = OperatorError(FORMULA)

    def hear_attention(self, operator, kind):
        """Record the curves of the attention of equal layers."""
        phase, law = PHASES[operator]
        found = [self._attention_error(*each) for each in kind.lookups(phase)]
        if not kind.is_measurable:
            found = [OperatorError(None)]
        elif not any(each.inside for each in found):
            found = [OperatorError(self._law(law, kv_format(self._deployment)))]
        self._found.setdefault(operator, {}).update({(kind.name, i): each for i, each in enumerate(found)})

    def _attention_error(self, table: str, by_batch: dict, site: tuple, light_of: Callable,
                         is_root: bool) -> OperatorError:
        """Return the error of one kernel over batch sizes."""
        asked = {batch: Question(table, curves, site, light_of(batch), is_root)
                 for batch, curves in by_batch.items() if curves}
        inside = pooled(each.inside() for each in asked.values())
        if not is_root and (of_grid := measured_spread(grid_sizes(by_batch, site, light_of),
                                                       f"{table}: inner points and batch sizes left out")):
            inside = of_grid
        return OperatorError(inside, pooled(each.outside() for each in asked.values()), tables=(table,))

    def _error(self, operator: str, times: Times, question: Question | None) -> OperatorError:
        is_outside = times.origins >= EXTRAPOLATED
        if times.origins[1:].min() == ROOFLINE:
            return OperatorError(self._law(*law_of(operator, self._deployment)), is_outside=is_outside)
        if question is None:
            return OperatorError(None)
        is_stand_in = is_outside[1:].all() and (question.is_measured or not question.curves)
        if is_stand_in:
            return OperatorError(self._law(*law_of(operator, self._deployment)), None, is_outside, (question.table,))
        inside, outside = question.inside(), question.outside() if is_outside.any() else None
        if inside is None and not is_outside[1:].all():
            inside = outside or self._law(*law_of(operator, self._deployment))      # too few points for leave-one-out
        return OperatorError(inside, outside, is_outside, (question.table,))

    def _law(self, operator: str, dtype: str) -> Spread:
        return law_spread(operator, dtype, self._deployment.accelerator, by_share=True)

    # ---- results

    def errors(self, tables) -> dict[str, OperatorError]:
        """Return the error of each operator of IterationTables."""
        found = {name: _together(noted.values()) for name, noted in self._found.items()}
        for name, times in (("prefill_attention", tables.prefill), ("decode_attention", tables.decode)):
            found[name] = found[name]._replace(is_outside=times.origins >= EXTRAPOLATED)
        if tables.state_sequence_ns or tables.state_token_ns:
            found["state"] = OperatorError(None)
        return found


def law_of(operator: str, deployment) -> tuple[str, str]:
    """Return the operator and format of an operator in the roofline's errors."""
    if operator in COMMUNICATION:
        return "all_reduce", ""
    if operator == "experts":
        return "experts", deployment.expert_dtype
    return "products", deployment.matrix_dtype


def kv_format(deployment) -> str:
    """Return the tables' name of the format of the KV cache."""
    return "fp8" if deployment.kv_cache_bytes == 1 else "bfloat16"


def error_of_missing(name: str, deployment) -> str:
    """Return as text the error of the roofline, which prices an entry of `missing`."""
    if name == "linear_attention":
        return "with unknown error"
    if name.endswith((" prefill", " decode")):
        if text := _kind_error(*name.rpartition(" ")[::2], deployment):
            return text
        law = name.rpartition(" ")[2], kv_format(deployment)
    else:
        law = law_of("all_reduce" if " " in name else name, deployment)     # "expert exchange", "tensor all_reduce"
    error, how = law_error(*law, deployment.accelerator, by_share=True)
    return f"{error:.0%} off in the mean ({how})"


def _kind_error(name: str, phase: str, deployment) -> str | None:
    """Return the error of a kind of attention with tables on other accelerators, as text."""
    kind = {"window_attention": "hca", "attention": kind_of(deployment.model.attention)}.get(name, name)
    if (known := kinds().errors.get(kind)) is None:
        return None
    if (law := kind_error(kind, phase, generation_of(deployment.accelerator)[0])) is not None:
        return f"{law.mean:.0%} off in the mean ({law.how})"
    return f"{getattr(known, phase)[BY_SHARE]:.0%} off in the mean (roofline by one share of peak, {kind} {phase})"


def _together(errors) -> OperatorError:
    """Return the error of an operator that was looked up several times."""
    errors = list(errors)
    is_outside = errors[0].is_outside
    for each in errors[1:]:
        is_outside = is_outside | each.is_outside
    names = dict.fromkeys(name for each in errors for name in each.tables)
    return OperatorError(pooled(each.inside for each in errors), pooled(each.outside for each in errors), is_outside,
                         tuple(names))


def varied(tables, errors: dict[str, OperatorError], factors: dict[str, tuple[float, float]]):
    """Return IterationTables with factors on the times of operators.

    factors : by operator, within and outside the measured range; other operators are unchanged.
    """
    def of(name, ns):
        if name not in factors:
            return ns
        inside, beyond = factors[name]
        return ns * np.where(errors[name].is_outside, beyond, inside)

    attention = {"prefill": "prefill_attention", "decode": "decode_attention", "mixed": "decode_attention"}
    state, prefill = (factors.get(name, (1.0, 1.0))[0] for name in ("state", "prefill_attention"))
    return replace(
        tables, tokens_ns={name: of(name, ns) for name, ns in tables.tokens_ns.items()},
        samples_ns={name: of(name, ns) for name, ns in tables.samples_ns.items()},
        state_sequence_ns=tables.state_sequence_ns * state, state_token_ns=tables.state_token_ns * state,
        reading=Times(tables.decode.ns * prefill, tables.decode.origins),
        behind=tables.behind and tables.behind._replace(whole=of("prefill_attention", tables.behind.whole)),
        **{field: Times(of(name, getattr(tables, field).ns), getattr(tables, field).origins)
           for field, name in attention.items()})
