"""Errors of operators without a table: the formula of small operators."""
import numpy as np

from simulator.latency.uncertainty.spread import Spread

# |ln(formula / measured)| at shares 0, 0.1, .. 1 of rows: bytes / (0.8 x memory bandwidth) + 3 us a kernel. Mean of
# the quantiles of norms, rotary embeddings, activations, embeddings and samplers in five profiles: LLMServingSim at
# 5daddb2, RTX PRO 6000 (Llama-3.1-8B, Qwen3-32B, Qwen3-30B-A3B) and RTX 4090, Frontier, A800 (Llama-2-7B). Source:
# tools/formula_error.py, tools/README.md.
FORMULA = Spread(
    np.array([0.152, 0.316, 0.496, 0.655, 0.731, 0.805, 0.867, 0.934, 1.018, 1.093, 1.256]),
    "formula of small operators, on profiles that timed them")
