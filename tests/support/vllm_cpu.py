"""A real vLLM server on two CPU cores, measured: what calibrations are fitted to."""
from simulator import cli
from simulator.study.calibration.steps import PRICES
from support.goldens import GOLDENS

DATA = GOLDENS.parent / "data" / "measured_vllm_cpu"
SERVER = """
[engine]
max_model_len = 2048
block_size = 32
num_gpu_blocks = 1024
max_num_batched_tokens = 512
max_num_seqs = 32
async_scheduling = false
[latency]
backend = "linear"
per_context_token_us = 0
"""


def bring(folder, server=SERVER):
    """Write server.toml, and what was measured under two loads as w7 and w8."""
    for name, stem in (("w7", "w7_light_q"), ("w8", "w8_moderate_prefix_q")):
        assert cli.main(["import", str(DATA / f"{stem}.requests.csv"), "--as", "measured", "--out", str(folder / name),
                         "--quiet"]) == 0
    (folder / "server.toml").write_text(server)


def write_study(file, more=""):
    """Write a study that fits all prices of an iteration to w7 and holds w8 out."""
    lines = "\n".join(f'"{key}" = {{min = 0.0, max = 1e6}}' for key in (*PRICES, "latency.host.iteration_us"))
    file.write_text(f'extends = "server.toml"\n[study]\nkind = "calibrate"\nmeasured = ["w7", "w8"]\n'
                    f'held_out = ["w8"]\n{more}\n[study.fit]\n{lines}\n')
