"""Results of `vllm bench forward --output-json`: exact batches, timed as one CUDA graph each.

Source: vLLM 0.33.0, vllm/benchmarks/forward: a list of cases, each with its requests (query_len, kv_len after the
step, num_draft_tokens) and `median_us`, the median of the replays in `latency_us.samples_us`, over all ranks. Sampling
and the host are not in it, nor padding to sizes of graphs.
"""
from typing import Any

import msgspec

from simulator.study.measured.record import Measured, Row, counted
from simulator.study.measured.source import Source

NAME = "vllm bench forward"
UNSTABLE_PERCENT = 0.5          # spread of samples beyond which vLLM warns
FORWARD = ("its times are of kernels alone, without sampling, host and padding of graphs: [study.residual] with "
           "scope = \"forward\" takes them as such.")


class Request(msgspec.Struct):
    """A request of a case; tokens. kv_len : after the step."""

    query_len: int
    kv_len: int
    num_draft_tokens: int = 0
    chunked: bool = False

    @property
    def is_decode(self) -> bool:
        """Whether it decodes, or verifies drafts."""
        return self.kv_len > self.query_len == 1 + self.num_draft_tokens


class Case(msgspec.Struct):
    """A batch.

    median_us : of the forward pass; in each replay the longest rank counts. ranks : their results.
    """

    case: str
    requests: list[Request]
    median_us: float
    ranks: list[dict[str, Any]] = []


def recognises(source: Source) -> bool:
    """Return whether a file is a list of cases with a median time."""
    return bool(source.items) and all(b'"median_us"' in bytes(each) and b'"requests"' in bytes(each)
                                      for each in source.items[:3])


def read(source: Source) -> list[Measured]:
    """Return a row for each case, in their order.

    Raises
    ------
    InputErrors
        All faults of its cases.
    """
    steps, unstable = [], []
    for place, raw in enumerate(source.items):
        case = source.decoded(raw, Case, f"[{place}]")
        if case is None:
            continue
        if not case.median_us > 0.0 or not case.requests or any(
                each.query_len < 1 or each.kv_len < each.query_len for each in case.requests):
            source.wrong(f"[{place}]", f'case "{case.case}": expected requests with kv_len >= query_len >= 1, and a '
                                       f"median_us above 0, found {case.median_us}")
            continue
        steps.append(row_of(case))
        spread = (case.ranks[0].get("latency_us") or {}).get("sample_spread_pct") if case.ranks else None
        if isinstance(spread, float) and spread > UNSTABLE_PERCENT:
            unstable.append(case.case)
    source.faults.raise_if_any()
    notes = [FORWARD]
    if unstable:
        notes.append(f"{counted(len(unstable), 'case')} with samples that spread by more than {UNSTABLE_PERCENT} %: "
                     f"{', '.join(unstable[:5])}.")
    return [Measured(source.stem, [], steps, tuple(notes), {"engine": "vLLM"})]


def row_of(case: Case) -> Row:
    """Return the row of a case."""
    prompts = [each for each in case.requests if not each.is_decode]
    return {
        "duration_s": case.median_us / 1e6, "num_sequences": len(case.requests), "num_prefills": len(prompts),
        "prefill_tokens": sum(each.query_len for each in prompts),
        "decode_tokens": sum(each.query_len for each in case.requests if each.is_decode),
        "context_tokens": sum(each.kv_len for each in case.requests),
        "prefill_context_tokens": sum(each.kv_len - each.query_len for each in prompts)}
