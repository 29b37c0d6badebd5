"""A real server, where there is one: tools/vllm_cpu_server.py starts it, SIM_VLLM_URL says where it is."""
import os

import h5py
import numpy as np
import pytest

from support.observing import arrivals

URL = os.environ.get("SIM_VLLM_URL")
MODEL = os.environ.get("SIM_VLLM_MODEL", "tiny-random")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not URL, reason="SIM_VLLM_URL names no server of vLLM; tools/vllm_cpu_server.py starts one")]
TIMES_S = [0.1 * number for number in range(20)]


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_real_server_gives_as_many_tokens_as_asked(experiment, observe, api):
    found = observe(experiment(arrivals(*TIMES_S, prompt=64, output=16)), URL, "--api", api, model=MODEL)

    assert found.status == 0, found.err
    assert [row["status"] for row in found.rows] == ["ok"] * len(TIMES_S)
    assert {row["output_tokens"] for row in found.rows} == {"16"}
    assert {row["finish_reason"] for row in found.rows} == {"length"}
    assert all(0 < float(row["ttft_s"]) < float(row["e2el_s"]) for row in found.rows)
    inputs = np.array([int(row["input_tokens"]) for row in found.rows])
    assert np.all(inputs == 64) if api == "completions" else np.all(abs(inputs - 64) <= 3)
    with h5py.File(found.directory / "token_times.h5") as file:
        assert file["token_times"]["tokens"][:].sum() == 16 * len(TIMES_S)
    assert found.server["version"] and found.server["max_model_len"] >= 80
    before, after = (sum(value for name, value in found.server["metrics"][when].items()
                         if name.startswith("vllm:request_success_total")) for when in ("before", "after"))
    assert after - before >= len(TIMES_S)


def test_a_real_server_finds_the_conversation_in_its_cache(experiment, observe):
    sessions = {"rounds": {"distribution": "constant", "value": 3},
                "new_tokens": {"distribution": "constant", "value": 128},
                "output_tokens": {"distribution": "constant", "value": 32},
                "think_time_s": {"distribution": "constant", "value": 0.1}}
    found = observe(experiment(workload={"type": "sessions", "num_sessions": 2, "sessions": sessions, "arrival": {
        "process": "poisson", "rate_per_s": 5.0}}), URL, model=MODEL)

    # Rounds of 128, 288 and 448 tokens. Of what stood there before, whole blocks are in the cache, but for the last
    # token of an answer, whose KV is never computed.
    block = int(found.server["flags"]["block_size"])
    for row in found.rows:
        before = 160 * int(row["round"])
        assert row["status"] == "ok" and int(row["input_tokens"]) == 128 + before
        assert int(row["cached_tokens"] or 0) == max(before - 1, 0) // block * block
