"""Writer of profiles in Vidur's format without measurements: each operator has the time of the roofline.

A kernel takes its latency plus the longer of its arithmetic and its traffic (weights or activations), at the rates of
latency/roofline/costs.py. Residual adds are part of the norms, as there, so that mlp.csv has no column `add`.
"""
import csv
import io
from collections.abc import Iterator
from pathlib import Path

import msgspec

from simulator.collective.exchanges import exchanges
from simulator.domain.deployment import Deployment
from simulator.errors import InputErrors
from simulator.latency.forest.profiles import BYTES_PER_ELEMENT, SOURCE, Subject, subject_of
from simulator.latency.roofline.costs import Rates, link_bytes_per_s, rates, roofline_costs

NS_PER_MS = 1e6
TRAFFIC_OF_NORM = 4             # x hidden size: residual and input read, their sum and its norm written


class SyntheticProfiles(msgspec.Struct, frozen=True, kw_only=True):
    """Profiles to write.

    parameters : ForestParameters, of which only profile_block_size is used.
    roofline : RooflineParameters
    source : source of the times, written into every row.
    tokens : numbers of tokens of iterations and of prompt chunks.
    batch_sizes : numbers of decoding sequences.
    contexts : numbers of tokens in the KV cache.
    """

    deployment: Deployment
    parameters: object
    roofline: object
    source: str
    tokens: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    contexts: tuple[int, ...]

    def write(self, folder: str | Path) -> list[Path]:
        """Write mlp.csv and attention.csv.

        Also all_reduce.csv and send_recv.csv, if the deployment has such messages.

        Returns
        -------
        list of Path
            The files.

        Raises
        ------
        InputErrors
            Profiles of this form do not describe the model; a file exists already, or cannot be written.
        """
        try:
            tables = self._tables()
        except ValueError as error:     # no FLOP/s for a number format, no link bandwidth, ...
            raise error if isinstance(error, InputErrors) else InputErrors([str(error)]) from None
        paths = [Path(folder, f"{name}.csv") for name in tables]
        present = [f"{path}: exists already" for path in paths if path.exists()]
        if present:
            raise InputErrors(present)
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            for path, rows in zip(paths, tables.values(), strict=True):
                path.write_text(_text(rows, self.source), encoding="utf-8", newline="")
        except OSError as error:
            raise InputErrors([f"{folder}: {error.strerror}"]) from error
        return paths

    def _tables(self) -> dict[str, list[dict]]:
        subject, rate = subject_of(self.parameters, self.deployment), rates(self.roofline, self.deployment)
        compute = _Operators(self.deployment, rate)
        found = {"mlp": list(_compute_rows(self, subject, compute)),
                 "attention": list(_attention_rows(self, subject, compute))}
        messages = {each.kind: list(_message_rows(self, subject, rate, each)) for each in exchanges(self.deployment)}
        return found | messages


class _Operators:
    """Nanoseconds of the operators of one layer on one rank."""

    def __init__(self, deployment: Deployment, rate: Rates):
        model, ways = deployment.model, deployment.parallelism
        self._rate, self._matrix_bytes = rate, deployment.matrix_bytes
        self._layers = model.num_layers
        self._attention = roofline_costs(deployment, rate, prices_collectives=False).full_attention
        width, norms = model.hidden_size, model.norms_per_layer
        mixer, mlp = model.attention.shard(ways.tensor_parallel), model.mlp.shard(ways.tensor_parallel)
        names = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
        products = mixer.products(width) + mlp.products(width)
        self._weights = {name: each.n * each.k for name, each in zip(names, products, strict=True)}
        elements = {"attn_rope": mixer.moved_elements(width), "mlp_act": mlp.moved_elements(width),
                    "input_layernorm": TRAFFIC_OF_NORM * width * (norms - norms // 2),
                    "post_attention_layernorm": TRAFFIC_OF_NORM * width * (norms // 2)}
        self._token_bytes = {name: count * deployment.activation_bytes for name, count in elements.items() if count}
        self._kv_bytes = mixer.kv_elements_per_token * deployment.kv_cache_bytes

    def of_tokens(self, tokens: int) -> dict[str, float]:
        """Return the operators of mlp.csv for an iteration of `tokens` tokens."""
        rate = self._rate
        products = {name: max(2 * count * tokens / rate.matrix_prefill_flops,
                              count * self._matrix_bytes / rate.memory_bytes) for name, count in self._weights.items()}
        moved = {name: count * tokens / rate.memory_bytes for name, count in self._token_bytes.items()}
        return {name: ns + rate.kernel_ns for name, ns in (products | moved).items()}

    def save(self, tokens: int) -> float:
        """Return the time of writing the KV cache, in the kernel of the rotary embedding."""
        return self._kv_bytes * tokens / self._rate.memory_bytes

    def prefill(self, tokens: int, context: int) -> float:
        """Return the attention of one chunk after `context` tokens of its prompt."""
        costs = self._attention
        arithmetic = costs.pair_ns * tokens * (context + (tokens + 1) / 2)
        return max(arithmetic, costs.prefill_kv_ns * (context + tokens)) / self._layers + self._rate.attention_ns

    def decode(self, batch_size: int, context: int) -> float:
        """Return the attention of `batch_size` decodes with `context` tokens each."""
        per_token = max(self._attention.context_flops_ns, self._attention.context_kv_ns) / self._layers
        return per_token * batch_size * context + self._rate.attention_ns


def _compute_rows(profiles: SyntheticProfiles, subject: Subject, operators: _Operators) -> Iterator[dict]:
    measured_on = {
        "n_head": subject.n_head, "n_kv_head": subject.n_kv_head, "n_embd": subject.n_embd,
        "n_expanded_embd": subject.n_expanded_embd, "vocab_size": subject.vocab_size,
        "use_gated_mlp": subject.use_gated_mlp, "num_tensor_parallel_workers": subject.tensor_parallel}
    for tokens in profiles.tokens:
        yield _times(operators.of_tokens(tokens)) | {"num_tokens": tokens} | measured_on


def _attention_rows(profiles: SyntheticProfiles, subject: Subject, operators: _Operators) -> Iterator[dict]:
    def row(save: int, prefill: float | None, decode: float | None, **point: int) -> dict:
        times = _times({"attn_kv_cache_save": operators.save(save), "attn_prefill": prefill, "attn_decode": decode})
        return times | point | {
            "n_embd": subject.n_embd, "n_q_head": subject.n_head, "n_kv_head": subject.n_kv_head,
            "block_size": subject.block_size, "num_tensor_parallel_workers": subject.tensor_parallel}

    longest = profiles.deployment.model.max_position_embeddings
    for context in (0, *profiles.contexts):
        for tokens in profiles.tokens:
            if context + tokens <= longest:
                yield row(tokens, operators.prefill(tokens, context), None,
                          batch_size=1, prefill_chunk_size=tokens, kv_cache_size=context)
    for context in profiles.contexts:
        for size in profiles.batch_sizes:
            yield row(size, None, operators.decode(size, context),
                      batch_size=size, prefill_chunk_size=0, kv_cache_size=context)


def _message_rows(profiles: SyntheticProfiles, subject: Subject, rate: Rates, exchange) -> Iterator[dict]:
    deployment = profiles.deployment
    ranks = subject.tensor_parallel if exchange.kind == "all_reduce" else 2
    node = deployment.node.num_accelerators if deployment.node else deployment.parallelism.num_accelerators
    devices = ranks if exchange.kind == "all_reduce" or exchange.span <= node else 1
    ns_per_byte = exchange.sent_bytes / exchange.token_bytes / (
        link_bytes_per_s(deployment, exchange.span) * 1e-9 * rate.link_efficiency)
    for tokens in profiles.tokens:
        size = tokens * subject.n_embd * BYTES_PER_ELEMENT
        yield _times({exchange.kind: size * ns_per_byte + rate.collective_ns}) | {
            "num_workers": ranks, "size": size, "collective": exchange.kind, "devices_per_node": devices,
            "max_devices_per_node": node}


def _times(ns: dict[str, float | None]) -> dict[str, str]:
    """Return the columns of operators in milliseconds, as in profiles."""
    return {f"time_stats.{name}.median": "" if value is None else f"{value / NS_PER_MS:.6g}"
            for name, value in ns.items()}


def _text(rows: list[dict], source: str) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*rows[0], SOURCE])
    writer.writerows([*row.values(), source] for row in rows)
    return text.getvalue()
