"""A small experiment for the page of `explore`, and another value of each control."""
from simulator.domain.facts import shipped
from simulator.study.exploring.editing import with_values

FILE = str(shipped("configs") / "quickstart.toml")
TEXT = with_values((shipped("configs") / "quickstart.toml").read_text(), FILE, {
    "workload.num_requests": 60, "workload.arrival.rate_per_s": 40.0, "workload.system_prompts.num_tokens": 512,
    "workload.system_prompts.num_prompts": 1, "workload.system_prompts.share": 1.0})
OTHER = {"model": "qwen3-8b", "hardware": "a100-sxm-80gb", "price": 2.5, "tp": 2, "pp": 2, "dp": 2, "replicas": 2,
         "engine": "sglang", "version": "0.10", "seqs": 2, "budget": 256, "caching": False, "rate": 5.0,
         "requests": 50, "prompt": 300.0, "output": 50.0, "shared": 64, "trace": "data/agents.csv", "ttft": 20.0,
         "tpot": 9.0}
