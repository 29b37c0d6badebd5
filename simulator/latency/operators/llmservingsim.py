"""LLMServingSim's profile of one model on one accelerator as operator tables.

Its folder of one degree of tensor parallelism, tp<N>, holds dense.csv (layer, tokens, time_us), per_sequence.csv
(layer, sequences, time_us), attention.csv (prefill_chunk, kv_prefill, n_decode, kv_decode, time_us) and, for experts,
moe.csv (tokens, activated_experts, time_us), plain or .gz; times of one layer, 16-bit; and skew_fit.csv (pc, n_label,
skew_rate_label, kv_big_label, kp_label, alpha, n_samples), of decodes of unequal contexts, if it was made. From
attention, batches of prompts without prefix, or of decodes, are used; from experts, the row with the number of distinct
experts nearest to the expected one, E (1 - (1 - k/E)^T). Source: casys-kaist/LLMServingSim
at 5daddb2 (MIT).
"""
import re
from pathlib import Path

import numpy as np

from simulator.core.csv_columns import ProfileCsv
from simulator.domain.deployment import Deployment
from simulator.domain.rank_weights import head_product
from simulator.errors import InputErrors

LAYERS = {"qkv": "qkv_proj", "attention_out": "o_proj", "up_gate": "gate_up_proj", "down": "down_proj"}
PROMPT_TOKENS = 128             # minimum tokens of a chunk in the mixed batches that are used
SHORTEST_US = 0.5               # minimum time added by decodes; less is measurement noise
SMALL = {"rope_kv_write": ("rotary_emb",), "qk_norm": ("qk_norm",), "norms": ("layernorm",), "activation": ("act_fn",),
         "embedding": ("embedding",)}


def profile_files(folder: Path) -> dict[str, Path]:
    """Return the files of a profile's folder by name; empty: it is no such folder."""
    found = {name: path for name in ("dense", "per_sequence", "attention", "moe", "skew_fit")
             for path in (folder / f"{name}.csv", folder / f"{name}.csv.gz") if path.is_file()}
    return found if {"dense", "per_sequence", "attention"} <= found.keys() else {}


def read_profile(files: dict[str, Path], deployment: Deployment) -> dict[str, dict[str, np.ndarray]]:
    """Return tables by name, each in the form of files.read_columns.

    Raises
    ------
    InputErrors
        A file cannot be used, or is of another degree of tensor parallelism.
    """
    ranks = deployment.parallelism.tensor_parallel
    folder = files["dense"].parent
    degree = re.fullmatch(r"tp(\d+)", folder.name)
    if degree and int(degree[1]) != ranks:
        raise InputErrors([f"{folder}: profile of tensor_parallel = {degree[1]}, the deployment has {ranks}"])
    tables = {"gemm": _gemm(files, deployment), "small": _small(files)}
    attention = ProfileCsv(files["attention"])
    for phase in ("context", "generation"):
        tables[f"{phase}_attention"] = _attention(attention, phase, deployment)
    mixed = _mixed(attention)
    if len(mixed["latency_ms"]):
        tables["mixed_attention"] = mixed
    if "skew_fit" in files:
        tables["unequal_contexts"] = _unequal(ProfileCsv(files["skew_fit"]))
    if "moe" in files and deployment.model.moe:
        tables["moe"] = _moe(ProfileCsv(files["moe"]), deployment)
    return tables


def _gemm(files: dict[str, Path], deployment: Deployment) -> dict[str, np.ndarray]:
    model, ranks = deployment.model, deployment.parallelism.tensor_parallel
    dense, head = ProfileCsv(files["dense"]), ProfileCsv(files["per_sequence"])
    found, names = [], set(dense.texts("layer"))
    for part in filter(None, (model.attention, model.mlp)):
        for product in part.shard(ranks).products(model.hidden_size):
            if LAYERS.get(product.name) in names:
                found.append((product, dense.where(layer=LAYERS[product.name]), "tokens"))
    found.append((head_product(model, ranks), head.where(layer="lm_head"), "sequences"))
    columns = {
        "m": [rows.numbers(size) for _, rows, size in found],
        "n": [np.full(len(rows), float(product.n)) for product, rows, _ in found],
        "k": [np.full(len(rows), float(product.k)) for product, rows, _ in found],
        "latency_ms": [_ms(rows) for _, rows, _ in found]}
    return {name: np.concatenate(values) for name, values in columns.items()}


def _small(files: dict[str, Path]) -> dict[str, np.ndarray]:
    """Return times of operators between products, by tokens, and of the sampler, by rows."""
    dense, rows = ProfileCsv(files["dense"]), ProfileCsv(files["per_sequence"])
    found = []
    for table, size, operators in ((dense, "tokens", SMALL), (rows, "sequences", {"sampler": ("sampler",)})):
        for name, parts in operators.items():
            times = [table.where(layer=part) for part in parts if part in set(table.texts("layer"))]
            if len(times) == len(parts) and len({tuple(each.numbers(size)) for each in times}) == 1:
                found.append((name, times[0].numbers(size), sum(_ms(each) for each in times)))
    return {"operator": np.concatenate([np.full(len(ms), name) for name, _, ms in found] or [np.zeros(0, dtype=str)]),
            "num_tokens": np.concatenate([sizes for _, sizes, _ in found] or [np.zeros(0)]),
            "latency_ms": np.concatenate([ms for _, _, ms in found] or [np.zeros(0)])}


def _attention(table: ProfileCsv, phase: str, deployment: Deployment) -> dict[str, np.ndarray]:
    part = deployment.model.attention.shard(deployment.parallelism.tensor_parallel)
    if phase == "context":
        rows = table.where(n_decode=0, kv_prefill=0)
        batch, isl, step = np.ones(len(rows)), rows.numbers("prefill_chunk"), np.zeros(len(rows))
    else:
        rows = table.where(prefill_chunk=0)
        batch, isl, step = rows.numbers("n_decode"), np.ones(len(rows)), rows.numbers("kv_decode") - 1
    heads = {"num_heads": part.num_heads, "num_key_value_heads": part.num_kv_heads, "head_dim": part.head_dim}
    return {"batch_size": batch, "isl": isl, "step": step, "latency_ms": _ms(rows)} | {
        name: np.full(len(rows), float(count)) for name, count in heads.items()}


def _mixed(table: ProfileCsv) -> dict[str, np.ndarray]:
    """Return the time of decodes beside prompts: the median over prompts of the time that they add to prompts alone."""
    chunk, before, count, context = (table.numbers(name) for name in (
        "prefill_chunk", "kv_prefill", "n_decode", "kv_decode"))
    us = table.numbers("time_us")
    alone = {(c, b): t for c, b, n, t in zip(chunk, before, count, us, strict=True) if n == 0}
    added = {}
    for c, b, n, kv, t in zip(chunk, before, count, context, us, strict=True):
        if c >= PROMPT_TOKENS and n > 0 and (c, b) in alone:
            added.setdefault((n, kv), []).append(t - alone[c, b])
    found = [(n, kv, max(float(np.median(times)), SHORTEST_US)) for (n, kv), times in sorted(added.items())]
    n, kv, times = (np.array(values) for values in zip(*found)) if found else (np.zeros(0),) * 3
    return {"batch_size": n, "step": kv - 1, "latency_ms": times * 1e-3}


def _unequal(table: ProfileCsv) -> dict[str, np.ndarray]:
    """Return the shares alpha of unequal_contexts.py, a row for each measured group of batches."""
    chunk, alpha, samples = (table.numbers("pc"), table.numbers("alpha", may_be_negative=True),
                             table.numbers("n_samples"))
    is_used = (chunk == 0) | (chunk >= PROMPT_TOKENS)
    columns = {"decodes": _bounds(table, "n_label", r"n<=(\d+)"),
               "most_share": _bounds(table, "skew_rate_label", r"sr(?:<=|>)(\d+)%") / 100,
               "is_beside_prompts": (chunk > 0).astype(float), "alpha": alpha, "samples": samples}
    last = np.array([label.startswith("sr>") for label in table.texts("skew_rate_label")])
    columns["most_share"] = np.where(last, 1.0, columns["most_share"])
    return {name: values[is_used] for name, values in columns.items()}


def _bounds(table: ProfileCsv, column: str, form: str) -> np.ndarray:
    """Return the numbers in labels of groups.

    Raises
    ------
    InputErrors
        A label does not match `form`.
    """
    found = [re.fullmatch(form, label) for label in table.texts(column)]
    if None in found:
        label = table.texts(column)[found.index(None)]
        raise InputErrors([f'{table.path}: {column}: expected a label as "{form}", found "{label[:60]}"'])
    return np.array([float(each[1]) for each in found])


def _moe(table: ProfileCsv, deployment: Deployment) -> dict[str, np.ndarray]:
    model, ranks = deployment.model, deployment.parallelism.tensor_parallel
    moe = model.moe
    tokens, activated, ms = table.numbers("tokens"), table.numbers("activated_experts"), _ms(table)
    expected = moe.num_experts * (1 - (1 - moe.experts_per_token / moe.num_experts) ** tokens)
    order = np.lexsort([np.abs(activated - expected), tokens])
    first = order[np.unique(tokens[order], return_index=True)[1]]
    site = {"hidden_size": model.hidden_size, "inter_size": moe.intermediate_size, "topk": moe.experts_per_token,
            "num_experts": moe.num_experts, "moe_tp_size": ranks}
    return {"num_tokens": tokens[first], "latency_ms": ms[first]} | {
        name: np.full(len(first), float(value)) for name, value in site.items()}


def _ms(rows: ProfileCsv) -> np.ndarray:
    times = rows.numbers("time_us")
    if (times <= 0).any():
        raise InputErrors([f"{rows.path}: time_us: expected times above 0"])
    return times * 1e-3
