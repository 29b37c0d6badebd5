"""Measured times of other kinds of attention, of recurrences and of towers, beside what `roofline` prices for them.

Rows of aiconfigurator's tables of single operators: whole blocks of latent, compressed and block-sparse attention (the
time beyond their products), kernels of sparse latent attention and of recurrences, attention of encoders. Read by
derive_kinds.py.
"""
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from derive_efficiency import SYSTEMS

from simulator.domain.efficiency import KERNEL_LATENCY_US, efficiency_of
from simulator.domain.facts import load_accelerator
from simulator.domain.layers.gated_delta_net import GatedDeltaNet
from simulator.domain.layers.kda import KimiDeltaAttention
from simulator.latency.operators.blocks import CONTEXT, GENERATION, PLAIN, products_ns
from simulator.latency.operators.database import Database
from simulator.latency.operators.encoder_attention import encoder_curves
from simulator.latency.operators.files import framework_of, read_columns, table_of, version_of
from simulator.latency.operators.latent_attention import BLOCKS, LatentTables
from simulator.latency.operators.model import Operators
from simulator.latency.operators.recurrences import KERNELS
from simulator.latency.operators.rows import rows_where
from simulator.latency.operators.sparse_attention import KNOWN, SparseTables
from simulator.latency.roofline.curves import BETWEEN_FRAC
from simulator.latency.roofline.kind_laws import RAMP_TOKENS, TOWER, kind_of

ROWS = 1500                     # of each system, kind and phase, spread evenly
PHASES = {CONTEXT: "prefill", GENERATION: "decode"}
FLOAT32 = 4
SPARSE_KERNELS = ("glm5_dsa_attn_module", "glm5_mqa_logits_module", "glm5_topk_module")
# A rest that is a smaller part of its block is the difference of nearly equal times, and left out.
LEAST_SHARE = 0.25
# Where even the shortest time of a table is longer than this, as those of vLLM's prompts of latent attention
# (latent_attention.py), the host launched its kernels: rows of less than four times the shortest are left out, and the
# others say nothing of a floor.
HOST_NS = 50e3


class Rows(NamedTuple):
    """Measured times of a kind on one system: FLOPs and bytes of each pass, (passes, rows); others by row.

    last, beyond : FLOPs of the last query of each sequence, as of a decode; of all other queries. queries : FLOPs of
        one more query of each sequence, as of a prompt; tile : if it reads all of its context, else 0.
    last_ns, beyond_ns : of one pass over these queries and their outputs at full bandwidth.
    ramp : share of a prompt's floor, see kind_laws.py. new, cached : tokens of each chunk.
    """

    last: np.ndarray
    beyond: np.ndarray
    queries: np.ndarray
    tile: np.ndarray
    moved: np.ndarray
    last_ns: np.ndarray
    beyond_ns: np.ndarray
    ramp: np.ndarray
    known_ns: np.ndarray
    ns: np.ndarray
    new: np.ndarray
    cached: np.ndarray
    machine: "Machine"
    phase: str
    has_prefix: bool
    is_tower: bool
    is_hosted: bool

    def predicted(self, law: dict) -> np.ndarray:
        """Return the times by the numbers of both phases; decodes without numbers take shares of peak."""
        prompt, peak, bandwidth = law.get("prefill", NO_PROMPT), self.machine.peak, self.machine.bandwidth
        decode = law.get("decode", self.machine.by_share)
        if self.is_tower:
            decode = {"compute_frac": 1.0, "floor_us": 0.0, "passes": 0.0, "memory_frac": prompt["memory_frac"]}
        beyond = self.beyond + self.ramp * prompt.get("tile_tokens", 0.0) * self.tile
        of_passes = np.maximum(
            self.last / (peak * decode["compute_frac"]) + beyond / (peak * prompt["compute_frac"]),
            self.moved / (bandwidth * decode["memory_frac"])).sum(axis=0)
        return (of_passes + decode["passes"] * self.last_ns + prompt["passes"] * self.beyond_ns + self.known_ns
                + (decode["floor_us"] + self.ramp * prompt.get("floor_us", 0.0)) * 1e3)

    def of_share(self) -> np.ndarray:
        """Return the times by the shares of peak of plain attention."""
        shares = self.machine.shares
        flops = self.last if self.phase == "decode" else self.beyond + self.queries * (not self.is_tower)
        return np.maximum(flops / (self.machine.peak * shares.attention_frac),
                          self.moved / (self.machine.bandwidth * shares.bandwidth_frac)).sum(axis=0) + (
                              self.known_ns + shares.attention_us * 1e3)

    def some(self) -> "Rows":
        """Return at most ROWS rows that were not launched by the host."""
        least = self.ns.min()
        kept = np.flatnonzero(self.ns >= (4 * least if self.is_hosted else 0.0))
        chosen = kept[np.unique(np.linspace(0, len(kept) - 1, min(ROWS, len(kept))).astype(int))]
        return self._replace(**{name: getattr(self, name)[..., chosen] for name in ARRAYS},
                             ramp=self.ramp[chosen] * (not self.is_hosted))


ARRAYS = tuple(name for name in Rows._fields[:Rows._fields.index("machine")] if name != "ramp")
NO_PROMPT = {"compute_frac": 1.0, "floor_us": 0.0, "passes": 0.0}


class Machine:
    """Peak rates of a system per ns, its shares of peak, and its tables."""

    def __init__(self, system: str, path: str | None):
        self.accelerator = load_accelerator(SYSTEMS[system][0])
        self.peak = self.accelerator.flops_per_s("bfloat16") * 1e-9
        self.bandwidth = self.accelerator.memory_bandwidth_bytes_per_s * 1e-9
        self.shares = efficiency_of(self.accelerator)
        self.by_share = {"compute_frac": self.shares.attention_frac, "memory_frac": self.shares.bandwidth_frac,
                         "floor_us": self.shares.attention_us, "passes": 0.0}
        self._read: dict[str, str] = {}             # path -> SHA-256
        self.database, self.of_sglang = (Database(Operators.Parameters(system=system, path=path, framework=each),
                                                  self.accelerator) for each in (None, "sglang"))

    def between_ns(self, part, hidden: int, rows: np.ndarray) -> np.ndarray:
        """Return the time of a mixer's kernels that only move memory, as the roofline prices it."""
        moved = part.moved_elements(hidden) * 2 * rows
        return moved / (self.bandwidth * BETWEEN_FRAC) + part.between_kernels * KERNEL_LATENCY_US * 1e3

    def kernels_of_sglang(self, table: str) -> dict | None:
        """Return the columns of a table that `operators` does not read; None: there is none."""
        path = next(iter(self.of_sglang.files.get(table, ())), None)
        if path is not None:
            self._read[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        return path and read_columns(path)

    def used(self) -> dict[str, str]:
        """Return the SHA-256 of the tables that were read, by table, framework and version."""
        for base in (self.database, self.of_sglang):
            self._read |= {each["file"]: each["sha256"] for each in base.used.values() if "framework" in each}
        return {f"{table_of(path)} {framework_of(path)} {version_of(path)}": digest
                for path, digest in ((Path(file), digest) for file, digest in self._read.items())}


def attention(machine: Machine) -> Iterator[tuple[str, Rows]]:
    """Yield kind and rows of whole blocks, and of kernels of sparse latent attention."""
    for table, block in KNOWN:
        part, database = block.of_heads(1), machine.database
        kv = "fp8" if part.price_key == "csa_hca" else PLAIN
        tables = SparseTables(database, part, kv)
        for phase in PHASES:
            found = list(_blocks(machine, database, tables.curves(phase), block, phase))
            is_hosted = min((each[9].min(initial=np.inf) for each in found), default=0.0) > HOST_NS
            if phase == CONTEXT and found and kv == "fp8":
                found += _behind_prefixes(machine, f"{table}_context_module", block, kv_cache_dtype=kv)
            yield from _joined(kind_of(part), found, machine, phase, kv == "fp8", is_hosted)
    dense, _, block, _ = BLOCKS                 # of DeepSeek-V3, DeepSeek-V3.2, GLM-5, GLM-5.2
    tables = LatentTables(machine.database, dense.of_heads(1), PLAIN, is_graph=True)
    for phase in PHASES:
        found = list(_blocks(machine, machine.database, tables.curves(phase), dense, phase))
        yield from _joined("latent", found, machine, phase, is_hosted=phase == CONTEXT)
    # vLLM's blocks of sparse latent attention were launched by the host: SGLang's decodes are replayed from a graph.
    database = machine.of_sglang
    for kv in (PLAIN, "fp8"):
        curves = LatentTables(database, block.of_heads(1), kv, is_graph=True).curves(GENERATION)
        yield from _joined("sparse_latent", list(_blocks(machine, database, curves, block, GENERATION, kv)), machine,
                           GENERATION)
    yield from _joined("sparse_latent", _kernels(machine, block), machine, CONTEXT, has_prefix=True)


def _blocks(machine, database, by_batch: dict, block, phase: str, kv: str = PLAIN) -> Iterator[tuple]:
    for batch, curves in by_batch.items():
        for (heads, *_), curve in curves.items():
            if heads >= 8:
                part, rows = block.of_heads(int(heads)), batch * (curve.sizes if phase == CONTEXT else curve.sizes ** 0)
                products = products_ns(database, block, int(heads), _format(part), rows)
                new = curve.sizes if phase == CONTEXT else np.ones(len(curve.sizes))
                yield _of_attention(machine, database, block, int(heads), batch, new, curve.sizes - new, curve.ns,
                                    curve.ns >= LEAST_SHARE * (curve.ns + products), kv)


def _behind_prefixes(machine, table: str, block, **required) -> Iterator[tuple]:
    """Yield the rows of prompts behind a prefix, of whole blocks."""
    database = machine.database
    columns = database.columns(table)
    kept = np.isin(columns["model"], block.names) & (columns["step"] > 0) & (columns["num_heads"] >= 8)
    for name, value in required.items():
        kept &= columns[name] == value
    rows = rows_where(columns, kept)
    for heads in np.unique(rows["num_heads"]):
        of = rows_where(rows, rows["num_heads"] == heads)
        ns, tokens = of["latency_ms"] * 1e6, of["batch_size"] * of["isl"]
        rest = ns - products_ns(database, block, int(heads), _format(block.of_heads(1)), tokens)
        yield _of_attention(machine, database, block, int(heads), of["batch_size"], of["isl"], of["step"],
                            np.maximum(rest, 1.0), rest >= LEAST_SHARE * ns)


def _kernels(machine, block) -> list[tuple]:
    """Return the rows of prompts of sparse latent attention: the sum of its three kernels, small ones excluded."""
    sums: dict[tuple, dict] = {}
    for table in SPARSE_KERNELS:
        columns = machine.kernels_of_sglang(table)
        if columns is None:
            return []
        for *key, ns in zip(*(columns[name] for name in ("batch_size", "isl", "step", "latency_ms")), strict=True):
            sums.setdefault(tuple(key), {}).setdefault(table, []).append(ns * 1e6)
    batch, new, cached, ns = np.array([(*key, sum(map(np.mean, each.values()))) for key, each in sums.items()
                                       if len(each) == len(SPARSE_KERNELS) and key[1] > 1]).T
    rows = _of_attention(machine, None, block, 64, batch, new, cached, ns, ns > 0)
    return [(*rows[:8], np.zeros(len(ns)), ns, *rows[10:])]


def _format(part) -> str:
    return "fp8_block" if part.price_key == "csa_hca" else PLAIN


def _of_attention(machine, database, block, heads: int, batch, new, cached, ns, kept,
                  kv: str = PLAIN) -> tuple:
    """Return the rows of chunks of `new` tokens behind `cached` ones; decodes are chunks of one."""
    part, lengths, flops = block.of_heads(heads), new + cached, []
    batch = np.broadcast_to(batch, lengths.shape).astype(float)
    for each in part.passes(1 if part.price_key == "csa_hca" or kv == "fp8" else 2):
        seen = np.minimum(lengths, each.window) if each.window else lengths
        beyond = new * cached + new * (new + 1) / 2 - lengths
        beyond = np.minimum(beyond, each.window * (new - 1)) if each.window else beyond
        flops.append((batch * seen * each.decode_flops, batch * beyond * each.pair_flops,
                      batch * seen * each.pair_flops, batch * seen * each.pair_flops * (not each.window),
                      batch * seen * each.kv_bytes))
    last, beyond, queries, tile, moved = (np.array(of) for of in zip(*flops, strict=True))
    token_ns = part.num_heads * (part.head_dim + part.value_dim) * 2 / machine.bandwidth
    small = np.zeros(len(lengths)) if database is None else sum(
        database.small_ns(2 * each.elements, batch * new, each.kernels) for each in part.small_operators)
    others = batch * (new - 1)
    found = (last, beyond, queries, tile, moved, batch * token_ns, others * token_ns,
             np.minimum(others / RAMP_TOKENS, 1.0), machine.between_ns(part, block.hidden, batch * new), ns + small,
             np.broadcast_to(new, lengths.shape), np.broadcast_to(cached, lengths.shape))
    return tuple(each[..., kept] for each in found)


def recurrences(machine: Machine) -> Iterator[tuple[str, Rows]]:
    """Yield kind and rows of the kernels of recurrences, convolutions excluded."""
    parts = {"gated_delta_net": [GatedDeltaNet(num_key_heads=keys, num_value_heads=values, key_head_dim=128,
                                               value_head_dim=128, conv_kernel=4)
                                 for keys, values in ((2, 8), (4, 16), (8, 32), (16, 32), (16, 64))],
             "kda": [KimiDeltaAttention(num_heads=heads, head_dim=128, conv_kernel=4) for heads in (12, 24, 48, 96)]}
    for kind, each in parts.items():
        for phase in PHASES:
            found = []
            for part in each:
                for batch in (1, 4, 16, 64, 256) if phase == CONTEXT else (1,):
                    lookups = KERNELS[kind].lookups(machine.database, phase, batch, part)
                    curve = lookups[-1].curves.get(lookups[-1].site) if lookups else None
                    if curve is not None:
                        found.append(_of_states(machine, part, phase, batch, curve))
            yield from _joined(kind, found, machine, phase)


def _of_states(machine, part, phase, batch, curve) -> tuple:
    none = np.zeros(len(curve.sizes))
    others, sequences = (batch * (curve.sizes - 1), none + batch) if phase == CONTEXT else (none, curve.sizes)
    state = 2 * FLOAT32 * part.recurrence_elements * sequences
    nothing = np.array([none, none])
    return (nothing, np.array([others * part.state_flops_per_token, none]), nothing, nothing, np.array([none, state]),
            none, none, np.minimum(others / RAMP_TOKENS, 1.0), none + KERNEL_LATENCY_US * 1e3,
            np.maximum(curve.ns, state / machine.bandwidth), curve.sizes if phase == CONTEXT else none + 1, none)


def towers(machine: Machine) -> Iterator[tuple[str, Rows]]:
    """Yield the rows of bidirectional attention, of 256 tokens and more."""
    found = []
    for batch, curves in encoder_curves(machine.database).items():
        for (heads, width), curve in curves.items():
            kept = curve.sizes >= 256
            if kept.any() and heads >= 8:
                size = batch * heads * width * curve.sizes[kept]
                none = np.zeros(len(size))
                found.append((np.array([none]), np.array([4 * size * curve.sizes[kept]]), np.array([none]),
                              np.array([none]), np.array([8 * size]), none, none, none + 1.0, none, curve.ns[kept],
                              curve.sizes[kept], none))
    yield from _joined(TOWER, found, machine, CONTEXT)


def _joined(kind: str, found: list[tuple], machine, phase: str, has_prefix: bool = False,
            is_hosted: bool = False) -> Iterator[tuple[str, Rows]]:
    """Yield all rows of a kind and phase as one; none if there are none."""
    if found and sum(len(each[0][0]) for each in found):
        rows = Rows(*(np.concatenate(each, axis=-1) for each in zip(*found, strict=True)), machine, PHASES[phase],
                    has_prefix, kind == TOWER, is_hosted)
        yield kind, rows.some()
