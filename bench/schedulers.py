"""All built-in schedulers on the same requests, each with the same limits as far as it has them."""
from dataclasses import replace
from math import inf

from cases import Case

from simulator.registry import KINDS, load

MOST_RUNNING, MOST_TOKENS = 256, 8192       # the longest prompt has this length
OVERLAP = "sglang, overlap"                 # `sglang` by default: a batch is chosen while the one before executes
NAMES = (*(name for name in KINDS["scheduler"].entries if name != "split_wise"), OVERLAP)       # it needs two pools
LIMITS = {"max_num_seqs": MOST_RUNNING, "max_num_batched_tokens": MOST_TOKENS}
IN_BATCHES = {"batch_size_cap": MOST_RUNNING}
OF_WHOLE_PROMPTS = IN_BATCHES | {"max_tokens_in_batch": MOST_TOKENS}
OF_SGLANG = {"max_running_requests": MOST_RUNNING, "chunked_prefill_size": MOST_TOKENS,
             "max_prefill_tokens": MOST_TOKENS}
KEYS = {
    "faster_transformer": IN_BATCHES,
    "lightllm": OF_WHOLE_PROMPTS,
    "orca": IN_BATCHES,
    "sarathi": IN_BATCHES | {"chunk_size": MOST_TOKENS},
    "sglang": OF_SGLANG | {"disable_overlap_schedule": True},
    OVERLAP: OF_SGLANG,
    "tensorrt_llm": {"max_batch_size": MOST_RUNNING, "max_num_tokens": MOST_TOKENS},
    "vllm_v0": OF_WHOLE_PROMPTS,
}
LOADS = {       # 25 requests/s keep some hundred decoding while prompts come; or all have come at the start
    "steady": Case(20_000),
    "at once": Case(20_000, rate_per_s=inf),
}


def case_of(name, load_name):
    """Return the case of a scheduler."""
    scheduler = load("scheduler", name.partition(",")[0])
    return replace(LOADS[load_name], scheduler=scheduler, parameters=scheduler.Parameters(**KEYS.get(name, LIMITS)),
                   block_size=1 if name == "lightllm" else 16)
