"""As every_key_sections.py, for the keys of latency backends and collective models."""
from pathlib import Path

from support.every_key import ABSENT, acts, predicts, refuses
from support.operator_profiles import write_tables

DATA = Path(__file__).parents[2] / "configs" / "data"
SMALL = {"model__name": "llama-3.2-1b", "hardware__name": "h100-sxm-80gb"}
TWO_GPUS = {"model__name": "llama-3.1-8b", "hardware__name": "h100-sxm-80gb", "topology__tensor_parallel": 2,
            "topology__node": "dgx-h100"}
SPREAD = TWO_GPUS | {"model__name": "llama-3.1-405b", "topology__tensor_parallel": 16, "latency__backend": "roofline"}
EXPERTS = TWO_GPUS | {"model__name": "gpt-oss-20b", "topology__expert_parallel": 2}
STAGES = {"topology__pipeline_parallel": 2}
FOREST = TWO_GPUS | {
    "latency__compute_file": str(DATA / "forest/mlp.csv"),
    "latency__attention_file": str(DATA / "forest/attention.csv"),
    "latency__all_reduce_file": str(DATA / "forest/all_reduce.csv"), "latency__num_estimators": [2],
    "latency__max_depth": [6], "latency__min_samples_split": [2], "latency__num_training_jobs": 1}
LINES = FOREST | {"latency__estimator": "linear_regression", "latency__polynomial_degree": [1],
                  "latency__polynomial_include_bias": [True], "latency__polynomial_interaction_only": [False],
                  "latency__fit_intercept": [True]}
AICB = EXPERTS | {"latency__tables": str(DATA / "aicb")}
NO_FILE = "no-such-file.csv"


def of(kind, entries):
    """Return entries under the name of a class."""
    return {f"{kind}.{name}": case for name, case in entries.items()}


BACKENDS = {
    **of("latency:linear", {
        "base_us": acts(5000.0, 6000.0), "per_sequence_us": acts(10.0, 20.0), "per_prefill_token_us": acts(20.0, 30.0),
        "per_decode_token_us": acts(0.0, 10.0), "per_context_token_us": acts(0.05, 0.5)}),
    **of("latency:roofline", {
        **{name: predicts(0.2, 0.6, **SMALL) for name in (
            "mfu_prefill", "mfu_attention", "bandwidth_efficiency")},
        "efficiency": predicts("laws", "shares", **SMALL), "mfu_decode": predicts(1e-4, 1e-3, **SMALL),
        "kernel_latency_us": predicts(3.0, 6.0, **SMALL), "attention_latency_us": predicts(1.0, 6.0, **SMALL),
        "collective_latency_us": predicts(5.0, 50.0, **TWO_GPUS), "link_efficiency": predicts(0.6, 0.1, **TWO_GPUS)}),
    **of("latency:step_roofline", {"mfu_prefill": predicts(0.05, 0.2, **SMALL), "mfu_decode": predicts(
        1e-4, 1e-3, **SMALL)}),
    **of("latency:blackbox", {
        "coefficients": refuses("none", "coefficients"), "beta": acts([5000.0, 20.0, 15.0], [6000.0, 20.0, 15.0]),
        "alpha": acts([0.0, 0.0, 0.0], [900.0, 0.0, 0.0], latency__beta=[5000.0, 20.0, 15.0])}),
    **of("latency:crossmodel", {
        "coefficients": refuses("none", "coefficients", **SMALL),
        "beta": predicts([10.0, 1.0, 1.0, 1.0], [20.0, 1.0, 1.0, 1.0], **SMALL),
        "alpha": acts([0.0, 0.0, 0.0], [900.0, 0.0, 0.0], latency__beta=[100.0, 1.0, 1.0, 1.0], **SMALL)}),
    **of("latency:trained_physics", {
        "coefficients": refuses("none", "coefficients", **SMALL),
        "beta": predicts([1.0] * 7, [2.0] * 7, **SMALL),
        "alpha": acts([0.0, 0.0, 0.0], [900.0, 0.0, 0.0], latency__beta=[1.0] * 7, **SMALL),
        "conventions": predicts("blis", "model", latency__beta=[1.0] * 7, **TWO_GPUS)}),
    **of("latency:aicb", {
        "tables": refuses(str(DATA / "aicb_dense"), "aicb_dense: no table", **AICB),
        "table_model": refuses("other", "other", **AICB),
        "world_size": refuses(4, "world_size", **AICB), "expert_parallel": refuses(1, "ep 1", **AICB),
        "decode_world_size": refuses(4, "world_size", **AICB),
        "decode_expert_parallel": refuses(1, "ep 1", **AICB),
        "variant": predicts("intended", "upstream", **AICB),
        "expert_exchange": predicts("rdma", "nvlink", **AICB),
        "rdma_bandwidth_gbps": predicts(800.0, 8.0, **AICB), "nvlink_bandwidth_gbps": predicts(1600.0, 16.0, **AICB),
        "collective_latency_us": predicts(5.0, 50.0, **AICB),
        "outside": refuses("error", "outside", "predict", **AICB)}),
    **of("latency:forest", {
        **{name: refuses(NO_FILE, NO_FILE, **FOREST) for name in ("compute_file", "attention_file", "all_reduce_file")},
        "send_recv_file": refuses(NO_FILE, NO_FILE, **FOREST | STAGES),
        "cpu_overhead_file": refuses(NO_FILE, NO_FILE, **FOREST),
        "profile_block_size": refuses(32, "32", **FOREST),
        "min_samples_split": predicts([2], [9], **FOREST),
        "polynomial_include_bias": predicts([True], [False], **LINES | {"latency__fit_intercept": [False]}),
        "fit_intercept": predicts([True], [False], **LINES | {"latency__polynomial_include_bias": [False]}),
        "kv_granularity_tokens": predicts(ABSENT, 1024, **FOREST),
        "max_tokens": predicts(ABSENT, 64, **FOREST), "max_chunk_tokens": predicts(ABSENT, 8, **FOREST),
        "max_kv_tokens": predicts(ABSENT, 64, **FOREST), "max_batch_size": predicts(ABSENT, 1, **FOREST),
        "outside": refuses("error", "outside", "predict", latency__max_tokens=8, **FOREST),
        "attention_decode_batching_overhead_fraction": predicts(ABSENT, 0.5, **FOREST),
        "attention_prefill_batching_overhead_fraction": predicts(ABSENT, 0.5, **FOREST),
        "nccl_cpu_launch_overhead_us": predicts(ABSENT, 0.0, **FOREST),
        "nccl_cpu_skew_overhead_us": predicts(ABSENT, 50.0, **FOREST)}),
}


def collective(**settings):
    """Return settings under which every exchange of sixteen GPUs asks the model."""
    return SPREAD | {f"latency__collective__{key}": value for key, value in settings.items()}


EXCHANGE = AICB | {"latency__backend": "aicb", "latency__expert_exchange": "collective"}
FABRIC = collective(fabric__design="spectrum_x", sizes_per_octave=1)


def measured(folder):
    """Return entries whose measured tables lie in a folder."""
    head = "collective,num_ranks,ranks_per_node,num_bytes,time_us\n"
    (folder / "slow.csv").write_text(head + "all_reduce,2,2,1000,10\nall_reduce,2,2,4000000,2000\n")
    (folder / "fast.csv").write_text(head + "all_reduce,2,2,1000,1\nall_reduce,2,2,4000000,200\n")
    one = TWO_GPUS | {"latency__backend": "roofline"}
    tables = SMALL | {"latency__path": str(write_tables(folder / "tables"))}      # of another model
    return of("collective:table", {
        "files": predicts([str(folder / "slow.csv")], [str(folder / "fast.csv")], **one)}) | of(
        "latency:operators", {
            "path": refuses("no-such-folder", "no-such-folder", **SMALL),
            "memory_efficiency": predicts(0.8, 0.4, **tables), "kernel_latency_us": predicts(3.0, 30.0, **tables),
            "missing": refuses("error", "nor one near it", "predict", **tables)})


BUS = {"latency__collective__small_messages": False}
COLLECTIVES = {
    **of("collective:busbw", {
        "convention": predicts("decimal", "simai", **SPREAD),
        "tensor.all_reduce": predicts(48.0, 4.0, **SPREAD),
        "pipeline_gb_per_s": predicts(48.0, 4.0, **SPREAD | STAGES),
        "gpu_type": predicts("A100", "H20", **SPREAD | {"topology__tensor_parallel": 8}),
        "nvlink_gb_per_s": predicts(400.0, 40.0, **SPREAD | {"topology__tensor_parallel": 8}),
        "nic_type": predicts("cx6", "bf3", **SPREAD | BUS), "nic_gb_per_s": predicts(48.0, 4.0, **SPREAD),
        "nics_per_node": predicts(8, 1, **SPREAD), "gpus_per_node": predicts(16, 4, **SPREAD | BUS),
        "small_messages": predicts(True, False, **SPREAD),
        "tensor_overlap": predicts(0.0, 0.9, **SPREAD),
        "expert.all_to_all": predicts(48.0, 4.0, **EXCHANGE), "expert_overlap": predicts(0.0, 0.9, **EXCHANGE),
        "pipeline_overlap": predicts(0.0, 0.9, latency__collective__pipeline_gb_per_s=1.0, **SPREAD | STAGES)}),
    **of("collective:flow", {
        "topology": refuses("no-such-file", "no-such-file", **SPREAD),
        "fabric.design": predicts("spectrum_x", "dcn_single_tor", **FABRIC),
        "fabric.num_gpus": refuses(8, "the network has 8 GPUs", **FABRIC),
        "fabric.gpus_per_server": predicts(8, 4, **FABRIC),
        "fabric.nv_switches_per_server": predicts(1, 2, **FABRIC),
        "fabric.nvlink_gbps": predicts(2880.0, 100.0, **FABRIC),
        "fabric.nvlink_latency_ns": predicts(25.0, 2500.0, **FABRIC),
        "fabric.nic_gbps": predicts(400.0, 40.0, **FABRIC),
        "fabric.spine_gbps": predicts(400.0, 4.0, **FABRIC),
        "fabric.latency_ns": predicts(500.0, 5000.0, **FABRIC),
        "fabric.nics_per_switch": predicts(64, 1, **FABRIC),
        "first_gpu": refuses(10**7, "too large to simulate", **FABRIC),
        "send_latency_us": predicts(6.0, 60.0, **FABRIC), "packet_bytes": predicts(9000.0, 100.0, **FABRIC),
        "header_bytes": predicts(48.0, 4800.0, **FABRIC),
        "nvls": predicts(False, True, **FABRIC | {"topology__tensor_parallel": 8}),
        "relay": predicts(False, True, **FABRIC),
        "sizes_per_octave": predicts(0, 1, **FABRIC | {"latency__collective__sizes_per_octave": ABSENT})}),
    **of("collective:external", {
        "binary": refuses("no-such-program", "no-such-program", **SPREAD)}),
}
LATENCY = BACKENDS | COLLECTIVES
