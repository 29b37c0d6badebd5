"""Measured operators fitted to a server that really ran: 300 chat requests to Llama-3.1-8B on an RTX PRO 6000."""
import json

import pytest

from simulator import cli
from support.goldens import GOLDENS

PROFILES = GOLDENS.parent / "data" / "profiles"
REQUESTS = PROFILES / "measured_vllm/RTXPRO6000/Llama-3.1-8B/requests.jsonl.gz"
OF_CARD = PROFILES / "llmservingsim/RTXPRO6000/meta-llama/Llama-3.1-8B/tp1"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not (REQUESTS.is_file() and OF_CARD.is_dir()),
                                                   reason="needs ../shared/data/profiles")]
pytest.importorskip("scipy", reason="the extra `fit`")


@pytest.mark.ci
def test_what_no_table_lacks_is_not_identified_and_the_rest_predicts(tmp_path):
    assert cli.main(["import", str(REQUESTS), "--as", "measured", "--out", str(tmp_path / "llm"), "--quiet"]) == 0
    (tmp_path / "study.toml").write_text(f"""
model = {{name = "llama-3.1-8b"}}
hardware = {{name = "rtx-pro-6000-server"}}
engine = {{max_num_batched_tokens = 2048, max_num_seqs = 128}}
latency = {{backend = "operators", path = "{OF_CARD}", cache_directory = "cache", host = {{defaults = "none"}}}}
[study]
kind = "calibrate"
measured = ["llm"]
fraction = 0.3
evaluations = 20
[study.fit]
"latency.memory_efficiency" = {{min = 0.5, max = 1.0}}
"latency.host.iteration_us" = {{min = 0.0, max = 1e4}}
""")
    assert cli.main(["calibrate", str(tmp_path / "study.toml"), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    found = json.loads((tmp_path / "out/calibration.json").read_text())

    efficiency = found["coefficients"]["latency.memory_efficiency"]
    assert efficiency["reason"].startswith("nothing that was measured depends on it")       # all is in the tables
    assert (efficiency["low"], efficiency["high"]) == (0.5, 1.0)
    assert not efficiency["identified"]
    assert found["held_out"]["e2el"]["request_level"]["quality"] == "excellent"
