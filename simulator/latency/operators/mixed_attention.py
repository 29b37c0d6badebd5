"""Attention of decodes in an iteration that also computes prompts.

FlashAttention 2 computes both in one call, which does not split the KV cache of a sequence among cores, unlike a call
for decodes alone: beside prompts, decodes take several times as long (`unsplit_decodes`). FlashAttention 3 (Hopper) and
FlashInfer (Blackwell servers) split it, and Triton's kernel for attention with sinks has one tile for all queries that
share a KV head: then the times of prompts and decodes add up.

If a profile has timed mixed batches, their time beyond the prompts' is used, by decodes and their context: within 9 %
in the mean, whereas the sum of prompts and decodes alone is 29 to 39 % short (LLMServingSim's attention.csv, 18,960
mixed batches each of Llama-3.1-8B and Qwen3-32B on RTX PRO 6000, 8,448 on RTX 4090).
"""
import numpy as np

from simulator.latency.operators.attention import Decodes
from simulator.latency.operators.curves import INTERPOLATED, Times
from simulator.latency.operators.unsplit_decodes import unsplit_ns
from simulator.latency.roofline.laws import splits_no_prompts

NOTE = ("attention of decodes beside prompts: FlashAttention 2 computes a tile of 64 queries for each, at the rate of "
        "prompts; by constants of RTX PRO 6000, mixed batches of RTX 4090 are 12 % off on average")
NO_CORES = ("attention of decodes beside prompts: num_cores of {card} is not known, so the time of a tile on one core "
            "is left out, and heads read their KV head together")


def mixed_table(composer, decode: Times, by_kind: list[Decodes], contexts: np.ndarray) -> Times:
    """Return the attention of decodes beside prompts, in the form of `decode`.

    Parameters
    ----------
    composer : Composer
    decode : attention of decodes alone, by sequences and contexts.
    by_kind : the same, by kind of layer.
    contexts : tokens in the cache after the step, the columns.
    """
    measured = _measured(composer, decode, contexts)
    if measured is not None:
        return measured
    joined = [each.kind for each in by_kind if each.kind.joins_prompts]
    if not (joined and composer.database.is_of_vllm and splits_no_prompts(composer.deployment.accelerator)):
        return decode                   # prompts and decodes are not computed in one call, which does not split decodes
    composer.origins["attention beside prompts"] = "interpolated"
    composer.database.notes.append(NOTE)
    if not (card := composer.deployment.accelerator).num_cores:
        composer.database.notes.append(NO_CORES.format(card=card.name))
    sequences = np.arange(len(decode.ns))
    ns = sum(each.kind.layers * unsplit_ns(composer, each.kind, sequences, contexts) if each.kind in joined
             else each.times.ns for each in by_kind)
    return Times(ns, np.maximum(decode.origins, INTERPOLATED))


def _measured(composer, decode: Times, contexts: np.ndarray) -> Times | None:
    curves, model = composer.database.mixed_curves(), composer.deployment.model
    if not curves or model.num_full_attention_layers != model.num_layers:
        return None
    counts = sorted(curves)
    last = curves[counts[-1]].sizes[-1]
    rows = np.array([np.interp(contexts, curves[count].sizes, curves[count].ns) for count in counts])
    rows *= np.maximum(contexts / last, 1.0)
    sequences = np.arange(len(decode.ns))
    ns = np.column_stack([np.interp(sequences, counts, column) for column in rows.T])
    beyond = sequences > counts[-1]
    ns[beyond] *= (sequences[beyond] / counts[-1])[:, None]
    composer.origins["attention beside prompts"] = "measured"
    return Times(np.where(sequences[:, None] > 0, ns * model.num_layers, 0.0), np.maximum(decode.origins, INTERPOLATED))
