"""Frontier's profile of one model on one accelerator as operator tables; Vidur's files have this form, too.

Its folder holds one or more of linear_op.csv (or mlp.csv), attention.csv and moe.csv, plain or .gz; times of one layer
in ms; the medians are used. linear_op_kernel_only.csv, without launches by the host, takes precedence if the engine
runs CUDA graphs. Facts of the columns (NetX-lab/Frontier at a4b22df, MIT):

- operators that tensor parallelism does not split (norms, embedding, head) are only in rows of degree 1;
- a row of attention.csv is a decode step of `batch_size` sequences with `kv_cache_size` tokens before it, or a prompt's
  chunk; only decodes, and single prompts without a prefix, are used. Mixed batches, and skewed ones, are left out;
- a row of moe.csv is one rank with 1/EP of the experts and `total_routed_tokens` pairs of a token and a local expert,
  which T = total x EP / chosen tokens of the whole batch produce. Only uniform routing by a router's logits is used.

No collectives, no sampler. All times except kernel_only include the host's time to launch a kernel.
"""
from pathlib import Path

import numpy as np

from simulator.core.csv_columns import ProfileCsv
from simulator.domain.deployment import Deployment
from simulator.domain.layers.base import Product
from simulator.domain.rank_weights import head_product
from simulator.errors import InputErrors

COLUMNS = {"qkv": "attn_pre_proj", "attention_out": "attn_post_proj", "up_gate": "mlp_up_proj",
           "down": "mlp_down_proj", "lm_head": "lm_head_linear"}
NORMS = "input_layernorm", "post_attention_layernorm"
EXPERTS = "moe_grouped_gemm", "moe_shuffling", "moe_gating_routing_topk"
NAMES = "linear_op_kernel_only", "linear_op", "mlp", "attention", "moe"


def profile_files(folder: Path) -> dict[str, Path]:
    """Return the files of a profile's folder by name; empty: it is no such folder."""
    found = {name: path for name in NAMES for path in (folder / f"{name}.csv", folder / f"{name}.csv.gz")
             if path.is_file()}
    return found if all(_is_one(path) for path in found.values()) else {}


def _is_one(path: Path) -> bool:
    return any(name.startswith("time_stats.") for name in ProfileCsv(path).header)


def read_profile(files: dict[str, Path], deployment: Deployment, is_graph: bool) -> dict[str, dict[str, np.ndarray]]:
    """Return tables by name, each in the form of files.read_columns.

    Raises
    ------
    InputErrors
        A file cannot be used, or has no rows of this model and degree of parallelism.
    """
    order = ("linear_op_kernel_only", "linear_op", "mlp") if is_graph else ("linear_op", "mlp", "linear_op_kernel_only")
    chosen = [files[name] for name in order if name in files][:1]
    tables = {}
    if chosen:
        file = _of_model(ProfileCsv(chosen[0], keep_copies=True), deployment.model)
        tables["gemm"], tables["small"] = _gemm(file, deployment), _small(file, deployment)
    if "attention" in files and deployment.model.attention.profile_key == "multi_head":
        tables |= _attention(ProfileCsv(files["attention"], keep_copies=True), deployment)
    if "moe" in files and deployment.model.moe:
        file = ProfileCsv(files["moe"], keep_copies=True)
        tables["moe"], router = _moe(file, deployment), _router(file, deployment.model)
        tables["gemm"] = _join([tables["gemm"], router]) if "gemm" in tables else router
    return {name: columns for name, columns in tables.items() if len(columns["latency_ms"])}


def _gemm(file: ProfileCsv, deployment: Deployment) -> dict[str, np.ndarray]:
    model, ranks = deployment.model, deployment.parallelism.tensor_parallel
    split, whole = file.where(num_tensor_parallel_workers=ranks), file.rows(_degrees(file) == 1)
    found = [(product, *_sum(split, (COLUMNS[product.name],))) for part in (model.attention, model.mlp) if part
             for product in part.shard(ranks).products(model.hidden_size) if product.name in COLUMNS]
    head = head_product(model, 1)
    found.append((head, *_sum(whole, (COLUMNS[head.name],))))
    if not any(len(tokens) for _, tokens, _ in found):
        raise InputErrors([f"{file.path}: no times of a matrix product of {model.name}"])
    return _join([{"gemm_dtype": np.full(len(ms), _format(file, product)), "m": tokens, "latency_ms": ms,
                   "n": np.full(len(ms), float(product.n)), "k": np.full(len(ms), float(product.k))}
                  for product, tokens, ms in found])


def _format(file: ProfileCsv, product: Product) -> str:
    """Return the format of weights; profiling_precision is the format of activations."""
    signature = file.texts("quant_signature")[0] if file.has("quant_signature") else ""
    if "block=" in signature and "block=none" not in signature:
        return "fp8_block" if product.is_quantized else "bfloat16"
    return "fp8" if "method=fp8" in signature and product.is_quantized else "bfloat16"


def _small(file: ProfileCsv, deployment: Deployment) -> dict[str, np.ndarray]:
    """Return times of operators between products, and of one norm with its residual sum, by tokens."""
    split = file.where(num_tensor_parallel_workers=deployment.parallelism.tensor_parallel)
    whole = file.rows(_degrees(file) == _degrees(file).min())
    found = {"embedding": _sum(whole, ("emb",)), "activation": _sum(split, ("mlp_act",)),
             "rope_kv_write": _sum(split, ("attn_rope",))}
    sums = ("add",) if whole.has("time_stats.add.median") else ()
    first, second = (_sum(whole, (norm, *sums)) for norm in NORMS)
    if np.array_equal(first[0], second[0]):
        found["norms"] = first[0], (first[1] + second[1]) / 2
    return _join([{"operator": np.full(len(ms), name), "num_tokens": tokens, "latency_ms": ms}
                  for name, (tokens, ms) in found.items()])


def _attention(file: ProfileCsv, deployment: Deployment) -> dict[str, dict[str, np.ndarray]]:
    model, ranks = deployment.model, deployment.parallelism.tensor_parallel
    part, whole = model.attention.shard(ranks), model.attention
    file = file.where(n_embd=model.hidden_size, n_q_head=whole.num_heads, n_kv_head=whole.num_kv_heads,
                      num_tensor_parallel_workers=ranks)
    for column, expected in (("is_mixed_batch", "False"), ("is_true_mixed_batch", ""), ("mode", "even")):
        if file.has(column):
            file = file.rows([cell in (expected, "False", "") if column != "mode" else cell == expected
                              for cell in file.texts(column)])
    heads = {"num_heads": part.num_heads, "num_key_value_heads": part.num_kv_heads, "head_dim": part.head_dim}
    tables = {}
    for phase, column in (("context", "attn_prefill"), ("generation", "attn_decode")):
        rows = file.where(is_prefill=str(phase == "context"))
        if phase == "context":
            rows = rows.where(batch_size=1, kv_cache_size=0)
        ms = rows.numbers(f"time_stats.{column}.median")
        sizes = {"batch_size": "batch_size", "isl": "prefill_chunk_size", "step": "kv_cache_size"}
        columns = {name: rows.numbers(each) for name, each in sizes.items()}
        columns |= {name: np.full(len(ms), float(count)) for name, count in heads.items()}
        tables[f"{phase}_attention"] = _positive(columns | {"latency_ms": ms})
    return tables


def _moe(file: ProfileCsv, deployment: Deployment) -> dict[str, np.ndarray]:
    model, moe, ways = deployment.model, deployment.model.moe, deployment.parallelism
    ranks, experts = ways.expert_ranks, ways.expert_parallel
    file = file.where(hidden_dim=model.hidden_size, num_experts=moe.num_experts, router_topk=moe.experts_per_token,
                      expert_hidden_dim=moe.intermediate_size, expert_parallel_size=experts,
                      num_tensor_parallel_workers=ranks // experts)
    if file.has("routing_runtime_path"):
        file = file.where(routing_runtime_path="standard_fused_topk")
    tokens = file.numbers("num_tokens")
    if file.has("total_routed_tokens"):
        tokens = file.numbers("total_routed_tokens") * experts / moe.experts_per_token
    names = [name for name in EXPERTS if file.has(f"time_stats.{name}.median")]
    sizes, total = np.unique(tokens), 0.0
    for name in names:
        ms = file.numbers(f"time_stats.{name}.median", may_be_empty=True)
        known = ms > 0
        if known.any():
            total = total + np.interp(sizes, *_means(tokens[known], ms[known]))
    site = {"hidden_size": model.hidden_size, "inter_size": moe.intermediate_size, "topk": moe.experts_per_token,
            "num_experts": moe.num_experts, "moe_tp_size": ranks // experts, "moe_ep_size": experts}
    return _positive({"num_tokens": sizes, "latency_ms": total} | {
        name: np.full(len(sizes), float(value)) for name, value in site.items()})


def _router(file: ProfileCsv, model) -> dict[str, np.ndarray]:
    """Return the product of the router, of which every rank holds all weights."""
    file = file.where(hidden_dim=model.hidden_size, num_experts=model.moe.num_experts)
    tokens, ms = _sum(file, ("moe_gating_linear",))
    return {"gemm_dtype": np.full(len(ms), "bfloat16"), "m": tokens, "latency_ms": ms,
            "n": np.full(len(ms), float(model.moe.num_experts)), "k": np.full(len(ms), float(model.hidden_size))}


def _of_model(file: ProfileCsv, model) -> ProfileCsv:
    heads = model.attention
    return file.where(n_embd=model.hidden_size, n_head=heads.num_heads, n_kv_head=heads.num_kv_heads)


def _degrees(file: ProfileCsv) -> np.ndarray:
    return file.numbers("num_tensor_parallel_workers")


def _sum(file: ProfileCsv, columns: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens and the sum of columns, for rows with all these columns."""
    names = [f"time_stats.{column}.median" for column in columns]
    if not all(file.has(name) for name in names):
        return np.zeros(0), np.zeros(0)
    ms = sum(file.numbers(name, may_be_empty=True) for name in names)
    return file.numbers("num_tokens")[ms > 0], ms[ms > 0]


def _means(sizes: np.ndarray, ms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sizes, increasing, and the mean time of each over the random routings."""
    each, places = np.unique(sizes, return_inverse=True)
    return each, np.bincount(places, ms) / np.bincount(places)


def _positive(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Leave out rows without a time."""
    kept = columns["latency_ms"] > 0
    return {name: values[kept] for name, values in columns.items()}


def _join(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
