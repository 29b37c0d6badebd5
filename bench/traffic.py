"""Chat-like traffic with a fixed seed: requests as a workload of the engine and as a trace file."""
from dataclasses import dataclass

import numpy as np

from simulator.domain import records
from simulator.workload.build import build_workload
from simulator.workload.columns import Columns, Prompts, in_arrival_order

MAX_PROMPT_TOKENS, MAX_OUTPUT_TOKENS = 8192, 2048


@dataclass(frozen=True)
class Traffic:
    """Arrays (n,), int64, in order of arrival; `prompts` has shared parts, None: there are none."""

    arrival_ns: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    prompts: Prompts | None = None

    def workload(self):
        """Return the workload in the engine's form."""
        columns = Columns(self.arrival_ns, self.prompt_tokens, self.output_tokens, prompts=self.prompts)
        return build_workload(in_arrival_order(columns))

    def write_trace(self, path):
        """Write the traffic as a native trace without its `prompts`."""
        columns = (*np.divmod(self.arrival_ns, 10**9), self.prompt_tokens, self.output_tokens)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        with open(path, "w", encoding="ascii") as file:
            file.write("arrived_at,num_prefill_tokens,num_decode_tokens\n")
            file.writelines(f"{s}.{ns:09d},{prompt},{output}\n" for s, ns, prompt, output in rows)


def chat(num_requests, rate_per_s, system_prompts=(0, 0), seed=1):
    """Return Poisson arrivals with lognormal lengths, cut at a model's limits.

    system_prompts : their number, and the length of each; every request begins with one.
    """
    generator = np.random.default_rng(seed)
    arrival_s = np.cumsum(generator.exponential(1 / rate_per_s, num_requests))
    prompt_tokens = _lognormal(generator, 660, 820, num_requests).clip(1, MAX_PROMPT_TOKENS)
    output_tokens = _lognormal(generator, 240, 280, num_requests).clip(1, MAX_OUTPUT_TOKENS)
    arrival_ns = np.rint(arrival_s * 1e9).astype(np.int64)
    num_prompts, shared_tokens = system_prompts
    if not num_prompts:
        return Traffic(arrival_ns, prompt_tokens, output_tokens)
    chosen = generator.integers(0, num_prompts, num_requests)
    streams = np.column_stack([records.named_stream(chosen), records.own_stream(np.arange(num_requests))])
    pieces = np.column_stack([np.full(num_requests, shared_tokens), prompt_tokens])
    prompts = Prompts(np.full(num_requests, 2), streams.ravel(), pieces.ravel())
    return Traffic(arrival_ns, prompt_tokens + shared_tokens, output_tokens, prompts)


def _lognormal(generator, mean, std, count):
    variance = np.log1p((std / mean) ** 2)
    return np.rint(generator.lognormal(np.log(mean) - variance / 2, np.sqrt(variance), count)).astype(np.int64)
