"""Rows of tables of operators: selection of rows, values of missing columns, formats, columns that a table needs."""
import numpy as np

EXCHANGED = "node_num", "hidden_size", "num_token", "num_topk", "num_experts"
# Columns that identify rows; other columns may be left out if all rows hold the usual value.
NEEDED = {
    "gemm": ("m", "n", "k"), "scale_matrix": ("m", "k"),
    **dict.fromkeys(("moe", "sglang_moe"), ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts")),
    "context_attention": ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim"),
    "generation_attention": ("batch_size", "step", "num_heads", "num_key_value_heads", "head_dim"),
    "context_mla": ("batch_size", "isl", "num_heads"), "generation_mla": ("batch_size", "step", "num_heads"),
    "mixed_attention": ("batch_size", "step"),
    "gdn": ("kernel_source", "phase", "batch_size", "seq_len", "num_k_heads", "num_v_heads"),
    **dict.fromkeys(("custom_allreduce", "trtllm_allreduce"), ("num_gpus", "message_size")),
    "nccl": ("num_gpus", "message_size"),
    "oneccl": ("num_gpus", "message_size"), "computescale": ("m", "k"),
    "mla_bmm": ("op_name", "num_tokens", "num_heads"),
    "kda": ("kernel_source", "phase", "batch_size", "seq_len", "num_v_heads"),
    "mamba2": ("kernel_source", "phase", "batch_size", "seq_len", "nheads", "head_dim", "n_groups", "d_state"),
    "moe_a2a": ("comm_backend", "phase", "moe_ep_size", "hidden_size", "topk", "num_experts", "num_tokens"),
    "trtllm_alltoall": ("op_name", "kernel_source", "moe_ep_size", "hidden_size", "topk", "num_experts", "num_tokens"),
    "wideep_deepep_ll": (*EXCHANGED, "dispatch_avg_t_us", "combine_avg_t_us"),
    "wideep_deepep_normal": (*EXCHANGED, "dispatch_transmit_us", "dispatch_notify_us", "combine_transmit_us",
                             "combine_notify_us"),
    "small": ("operator", "num_tokens"),
    **{f"wideep_{phase}_mlp": ("num_token", "hidden_size", "inter_size") for phase in ("context", "generation")},
    **dict.fromkeys(("wideep_context_moe", "wideep_generation_moe", "wideep_moe"),
                    ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts")),
    **{f"{kind}_{phase}_module": ("model", "gemm_type", "num_heads", "batch_size", "isl", "step")
       for kind in ("mla", "dsa", "dsv4_csa", "dsv4_hca", "msa") for phase in ("context", "generation")},
    **dict.fromkeys(("dsv4_paged_mqa_logits_module", "dsv4_hca_attn_module"),
                    ("num_heads", "batch_size", "isl", "step")),
    "mhc_module": ("op_name", "num_tokens", "hidden_size"),
    "encoder_attention": ("batch_size", "isl", "num_heads", "head_dim")}

GEMM_BITS = {"bfloat16": 16, "fp8": 8, "fp8_block": 8, "nvfp4": 4.5, "int4_wo": 4.5, "w4a16_mxfp4": 4.25,
             "w4a8_mxfp4_mxfp8": 4.25}
MATMUL_FORMATS = {"bfloat16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4", "int4_wo": "int4",
                  "w4a16_mxfp4": "int4", "w4a8_mxfp4_mxfp8": "fp8"}


def rows_where(columns: dict, kept: np.ndarray) -> dict:
    """Return the selected rows."""
    return {name: values[kept] for name, values in columns.items()}


def default(columns: dict, name: str, value) -> np.ndarray:
    """Return a column; if it is missing, all rows hold `value`."""
    return columns[name] if name in columns else np.full(len(columns["latency_ms"]), value)


def formats(columns: dict, name: str) -> np.ndarray:
    """Return a column of formats; if it is missing, the usual format."""
    return default(columns, name, "half" if name == "nccl_dtype" else "bfloat16")


def measured_ranges(columns: dict) -> dict[str, list[float]]:
    """Return the minimum and maximum of each axis."""
    return {name: [float(values.min()), float(values.max())] for name, values in sorted(columns.items())
            if values.dtype.kind == "f" and len(values) and not name.endswith(("_ms", "_us"))}
