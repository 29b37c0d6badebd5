"""What earlier requests have of each prompt, against texts compared token by token."""
from itertools import takewhile

import numpy as np
import pytest

from simulator.domain import records
from simulator.study.shared_prefixes import shared_tokens
from support.workloads import plain_workload


def random_workload(rng):
    """Return requests whose prompts draw on names, and on own streams and outputs of any."""
    count = int(rng.integers(1, 14))
    counts = rng.integers(0, 4, count)
    kinds = [records.named_stream, records.own_stream, records.output_stream]
    segments = np.array([(kinds[rng.integers(3)](int(rng.integers(min(count, 4)))), int(rng.integers(1, 6)))
                         for _ in range(counts.sum())], records.SEGMENT)
    ends = np.cumsum(counts)
    lengths = [int(segments["num_tokens"][end - n:end].sum()) or int(rng.integers(1, 6))
               for end, n in zip(ends, counts, strict=True)]
    workload = plain_workload(np.arange(count), lengths, rng.integers(0, 9, count))
    workload.segments = segments
    workload.demands["num_segments"], workload.demands["segments_begin"] = counts, ends - counts
    workload.demands["adapter"] = rng.integers(-1, 1, count)
    workload.demands["max_tokens"] = rng.integers(1, 9, count)
    return workload


def texts(workload):
    """Return prompt, and text in the KV cache at the end, of each request, token by token."""
    for row, demand in enumerate(workload.demands):
        begin = demand["segments_begin"]
        pieces = workload.segments[begin:begin + demand["num_segments"]].tolist()
        pieces = pieces or [(records.own_stream(row), int(workload.requests["prompt_tokens"][row]))]
        generated = min(max(int(workload.outcomes["output_tokens"][row]), 1), int(demand["max_tokens"]))
        prompt = [(stream, offset) for stream, tokens in pieces for offset in range(tokens)]
        yield prompt, prompt + [(records.output_stream(row), offset) for offset in range(generated - 1)]


@pytest.mark.parametrize("seed", range(40))
def test_shared_tokens_are_those_of_the_longest_common_beginning(seed):
    workload = random_workload(np.random.default_rng(seed))
    adapters, before, expected = workload.demands["adapter"].tolist(), [], []

    for adapter, (prompt, text) in zip(adapters, texts(workload), strict=True):
        common = (len(list(takewhile(lambda pair: pair[0] == pair[1], zip(prompt, other, strict=False))))
                  for owner, other in before if owner == adapter)
        expected.append(max(common, default=0))
        before.append((adapter, text))

    assert shared_tokens(workload).tolist() == (expected if len(workload.segments) else [0] * len(workload))
