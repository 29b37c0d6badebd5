"""Transfer times that Mooncake published, of one request at a time; base and rate are its fits, to all nine lengths.

Sources: kvcache-ai/Mooncake@3b5a5941, docs/source/performance/vllm/vllm-v1-pd-performance.md (whose GB are GiB, with a
template of some 14 tokens before each prompt) and docs/source/performance/sglang/sglang-benchmark-results-v1.md.
"""
from types import SimpleNamespace

import pytest

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.kv_transfer import KvTransfer
from simulator.domain.parallelism import Parallelism
from simulator.engine.hand_over.plan import Network
from simulator.engine.hand_over.settings import hand_over_plan
from simulator.engine.hand_over.transport import Transport

LINE_RATE = 200.0       # GB/s of both machines: 8 ports of 200 Gbit/s; 4 of 400
TABLES = {
    "vllm": ("qwen3-8b", "h800-sxm-80gb", 380.0, 0.73, 14,
             {128: 0.54, 512: 0.92, 2048: 2.51, 8192: 8.84, 32768: 31.65}),
    "sglang": ("qwen3-235b-a22b", "h20-96gb", 1840.0, 0.855, 0,
               {128: 2.07, 512: 2.98, 2048: 6.43, 8192: 20.31, 32768: 76.78}),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_transfer_alone_takes_what_was_measured(name):
    model, hardware, base_us, share, extra_tokens, rows = TABLES[name]
    ends = 2 * [Deployment(model=load_model(model), accelerator=load_accelerator(hardware),
                           parallelism=Parallelism(tensor_parallel=8))]
    settings = KvTransfer(base_us=base_us, bandwidth_gb_per_s=LINE_RATE * share)
    plan = hand_over_plan(settings, [("prefill", None), ("decode", None)], ends, (None, None), None, True)
    seats = [SimpleNamespace(replica=i, pool=i, place=0, node=i) for i in range(2)]
    transport = Transport(Network(seats, plan), plan.contention, plan.base_ns)

    for tokens, measured_ms in rows.items():
        num_bytes = (tokens + extra_tokens) * plan.pairs[0, 1].token_bytes
        assert transport.alone(0, 1, num_bytes) / 1e6 == pytest.approx(measured_ms, rel=0.07)
