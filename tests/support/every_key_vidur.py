"""As every_key_sections.py, for the keys of Vidur's schedulers."""
from support.every_key import ABSENT, acts
from support.every_key_hand_over import APART
from support.every_key_policies import of

PLAIN = {"engine__max_num_seqs": ABSENT, "engine__max_num_batched_tokens": ABSENT}
FEW = PLAIN | {"topology__replicas": 1, "engine__num_gpu_blocks": 40}
WHOLE = PLAIN | {"engine__num_gpu_blocks": 100}
OF_TOKENS = PLAIN | {"engine__block_size": 1, "engine__num_gpu_blocks": 2000,
                     "workload__output_knowledge__predictor": "exact"}
SPLIT = WHOLE | {key: value for key, value in APART.items() if key != "engine__async_scheduling"} | {
    "kv_transfer": APART["kv_transfer"] | {"protocol": "simai"}}
VIDUR = {
    **of("scheduler:sarathi", {
        "batch_size_cap": acts(1, 4, **PLAIN), "watermark_blocks_fraction": acts(0.0, 0.4, **FEW),
        "chunk_size": acts(32, 512, **PLAIN)}),
    **of("scheduler:vllm_v0", {
        "batch_size_cap": acts(1, 4, **PLAIN), "watermark_blocks_fraction": acts(0.0, 0.4, **FEW),
        "max_tokens_in_batch": acts(200, 4096, **PLAIN)}),
    **of("scheduler:orca", {
        "allocator": acts("blocks", "buddy", **WHOLE, engine__reservation="max_tokens"),
        "batch_size_cap": acts(1, 4, **WHOLE), "reservation": acts("max_model_len", "max_tokens", **WHOLE)}),
    **of("scheduler:faster_transformer", {
        "allocator": acts("blocks", "buddy", **WHOLE, engine__reservation="max_tokens"),
        "batch_size_cap": acts(1, 4, **WHOLE), "reservation": acts("max_model_len", "max_tokens", **WHOLE)}),
    **of("scheduler:split_wise", {
        "allocator": acts("blocks", "buddy", **SPLIT, engine__reservation="max_tokens"),
        "batch_size_cap": acts(1, 4, **SPLIT), "reservation": acts("max_model_len", "max_tokens", **SPLIT),
        "max_tokens_in_batch": acts(100, 4096, **SPLIT, engine__reservation="max_tokens")}),
    **of("scheduler:lightllm", {
        "batch_size_cap": acts(1, 4, **OF_TOKENS), "max_tokens_in_batch": acts(200, 4096, **OF_TOKENS),
        "max_waiting_iters": acts(1, 10, **OF_TOKENS)}),
}
