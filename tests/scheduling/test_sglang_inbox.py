"""`scheduler_recv_interval`: SGLang's scheduler reads its socket in every so many-th pass."""
import numpy as np
import pytest

import simulator
from simulator.domain import records
from simulator.errors import InputErrors

# Iterations of 10 ms, whatever is in them. r0 decodes from 0 on; r1 arrives within an iteration, and wants one token.
EXPERIMENT = """
engine = {scheduler = "sglang", num_gpu_blocks = 10_000, block_size = 1, max_model_len = 1000}
workload = {type = "trace", path = "trace.csv"}
[latency]
backend = "linear"
base_us = 10_000
per_sequence_us = 0
per_prefill_token_us = 0
per_context_token_us = 0
"""
TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,50,60\n0.105,100,1\n"


def serve(folder, trace=TRACE, **changes):
    """Return the result of an experiment, with these keys of [engine]."""
    (folder / "trace.csv").write_text(trace)
    (folder / "experiment.toml").write_text(EXPERIMENT)
    return simulator.run(folder / "experiment.toml", {f"engine.{key}": value for key, value in changes.items()})


def ttft_ms(result):
    requests = result.requests
    return ((requests["first_token_ns"] - requests["arrival_ns"]) / 1e6).tolist()


@pytest.mark.parametrize(("interval", "ms"), [
    # Without overlap the pass at 10 ms is the first behind r0's prompt, which counts as 1000: it reads, and so do those
    # 10, 20, .. passes of decodes later. r1 is read at the first of these after 105 ms, and has its token 10 ms later.
    (1, 15.0), (2, 15.0), (10, 15.0), (7, 55.0), (20, 115.0), (30, 215.0)])
def test_an_arrival_waits_for_the_pass_that_reads(tmp_path, interval, ms):
    result = serve(tmp_path, scheduler_recv_interval=interval, disable_overlap_schedule=True)
    assert ttft_ms(result)[1] == pytest.approx(ms)
    assert result.requests["status"].tolist() == [records.COMPLETED] * 2


def test_a_server_without_work_reads_at_once(tmp_path):
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,50,3\n1.0,50,3\n2.0,50,1\n"
    plain, rare = (serve(tmp_path, trace, scheduler_recv_interval=interval) for interval in (1, 1_000_000))
    assert ttft_ms(rare) == ttft_ms(plain)


def test_a_batch_with_prompts_counts_as_a_thousand(tmp_path):
    # Each prompt of 100 tokens takes ten chunks of 10: passes behind them read, and r2 joins the queue at once.
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,50,60\n0.0,100,1\n0.055,10,1\n"
    chunks = {"chunked_prefill_size": 10, "disable_overlap_schedule": True}
    plain, rare = (serve(tmp_path, trace, scheduler_recv_interval=interval, **chunks) for interval in (1, 1000))
    assert ttft_ms(rare) == ttft_ms(plain)
    rarer = serve(tmp_path, trace, scheduler_recv_interval=100_000, **chunks)
    assert ttft_ms(rarer)[2] > ttft_ms(plain)[2]


def test_whoever_gives_up_before_being_read_is_never_computed(tmp_path):
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens,deadline_s\n0,50,60,\n0.105,100,1,0.05\n0.11,30,1,\n"
    result = serve(tmp_path, trace, scheduler_recv_interval=20, disable_overlap_schedule=True)
    assert result.requests["status"].tolist() == [records.COMPLETED, records.TIMED_OUT, records.COMPLETED]
    assert ttft_ms(result)[2] == pytest.approx(110.0)


def test_the_queue_is_full_when_it_is_read(tmp_path):
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,50,60\n0.105,100,1\n0.106,100,1\n0.107,100,1\n"
    result = serve(tmp_path, trace, scheduler_recv_interval=20, max_queued_requests=2, disable_overlap_schedule=True)
    assert result.requests["status"].tolist() == [records.COMPLETED] * 3 + [records.FAILED]


@pytest.mark.parametrize("overlaps", [False, True])
def test_fast_forward_counts_the_passes_it_leaves_out(tmp_path, overlaps):
    rng = np.random.default_rng(5)
    rows = zip(np.cumsum(rng.exponential(0.08, 60)), rng.integers(1, 300, 60), rng.integers(1, 80, 60))
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(f"{at:.4f},{p},{d}\n" for at, p, d in rows)
    given = {"scheduler_recv_interval": 13, "disable_overlap_schedule": not overlaps}
    fast, slow = (serve(tmp_path, trace, **given, fast_forward=is_fast) for is_fast in (True, False))
    assert (fast.requests == slow.requests).all()
    assert ttft_ms(fast) != ttft_ms(serve(tmp_path, trace, disable_overlap_schedule=not overlaps))


def test_pools_for_prefill_and_decode_refuse_it(tmp_path):
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "experiment.toml").write_text(EXPERIMENT + """
[kv_transfer]
protocol = "sglang"
bandwidth_gb_per_s = 40.0
[model]
name = "llama-3.1-8b"
[hardware]
name = "h100-sxm-80gb"
[[pools]]
name = "prefill"
role = "prefill"
[[pools]]
name = "decode"
role = "decode"
""")
    with pytest.raises(InputErrors, match="scheduler_recv_interval"):
        simulator.run(tmp_path / "experiment.toml", {"engine.scheduler_recv_interval": 10})
