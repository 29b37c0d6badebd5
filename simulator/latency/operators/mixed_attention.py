"""Attention of decodes in an iteration that also computes prompts.

FlashAttention 2 computes both in one call, which does not split the KV cache of a sequence among cores, unlike a call
for decodes alone: beside prompts, decodes take several times as long. FlashAttention 3 (Hopper) and FlashInfer
(Blackwell servers) split it: then the times of prompts and decodes add up.

If a profile has timed mixed batches, their time beyond the prompts' is used, by decodes and their context: within 9 %
in the mean, whereas the sum of prompts and decodes alone is 29 to 39 % short (LLMServingSim's attention.csv, 18,960
mixed batches each of Llama-3.1-8B and Qwen3-32B on RTX PRO 6000, 8,448 on RTX 4090). Without such a profile decodes are
lengthened by factors from these tables: geometric means by the number of query heads that share a KV head.
"""
import numpy as np

from simulator.latency.operators.curves import INTERPOLATED, Times
from simulator.latency.roofline.laws import splits_no_prompts

DECODES = np.array([1, 4, 16, 64, 128])
CONTEXTS = np.array([16, 64, 256, 1024, 4096, 16384])
# By query heads per KV head: time of decodes beside prompts of 128 to 2,048 tokens / their time alone;
# [decodes, contexts]. Source: LLMServingSim at 5daddb2, attention.csv of RTX PRO 6000 and RTX 4090, vLLM 0.19.0.
FACTORS = {
    4: np.array([[0.11, 0.15, 0.16, 0.52, 3.1, 6.74],
                  [0.47, 0.46, 0.5, 0.95, 1.83, 2.37],
                  [1.65, 1.53, 1.33, 1.41, 1.56, 1.72],
                  [3.35, 2.92, 2.08, 1.61, 1.91, 2.14],
                  [4.19, 3.64, 2.42, 1.93, 3.2, 3.81]]),
    8: np.array([[0.14, 0.15, 0.21, 0.64, 3.22, 6.16],
                  [0.57, 0.57, 0.79, 1.44, 2.53, 3.33],
                  [2.25, 2.13, 2.07, 2.3, 2.55, 2.83],
                  [5.0, 4.31, 3.55, 2.69, 3.06, 3.85],
                  [6.74, 5.76, 4.08, 3.15, 5.49, 7.5]])}


def mixed_table(composer, decode: Times, contexts: np.ndarray) -> Times:
    """Return the attention of decodes beside prompts, in the form of `decode`.

    Parameters
    ----------
    composer : Composer
    decode : attention of decodes alone, by sequences and contexts.
    contexts : tokens in the cache after the step, the columns.
    """
    measured = _measured(composer, decode, contexts)
    if measured is not None:
        return measured
    if not (composer.database.is_of_vllm and splits_no_prompts(composer.deployment.accelerator)):
        return decode                   # prompts and decodes are not computed in one call, which does not split decodes
    part = composer.deployment.model.attention
    sharing = part.num_heads / part.num_kv_heads
    composer.origins["attention beside prompts"] = "interpolated"
    composer.database.notes.append(
        "attention of decodes beside prompts is lengthened by factors measured on RTX PRO 6000 and RTX 4090")
    factors = factors_of(sharing, np.arange(len(decode.ns)), contexts)
    return Times(decode.ns * factors, np.maximum(decode.origins, INTERPOLATED))


def factors_of(sharing: float, sequences: np.ndarray, contexts: np.ndarray) -> np.ndarray:
    """Return the factors on the time of decodes beside prompts.

    Parameters
    ----------
    sharing : query heads that share a KV head.
    sequences, contexts : one-dimensional.

    Returns
    -------
    (sequences, contexts) factors, interpolated linearly in logarithms.
    """
    few, many = FACTORS
    share = np.clip(np.log2(sharing / few) / np.log2(many / few), 0.0, 1.0)
    logarithms = np.log(FACTORS[few]) * (1 - share) + np.log(FACTORS[many]) * share
    by_context = np.array([np.interp(np.log(contexts), np.log(CONTEXTS), row) for row in logarithms])
    at = np.log(np.maximum(sequences, 1))
    return np.exp(np.column_stack([np.interp(at, np.log(DECODES), column) for column in by_context.T]))


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
