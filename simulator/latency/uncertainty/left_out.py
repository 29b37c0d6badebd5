"""Errors of whole predictions on deployments left out, by latency backend.

ln(measured / predicted) of means of runs, at shares 0, 0.05, .. 1 of the points, each deployment with the same weight:
the deployments of bench/accuracy without split pools, November 2026. Host time, front end and unknown options are
included. Source: tools/left_out_errors.py.

By the quantiles of the others, an interval of 80 % holds 75 % (TPOT) and 75 % (TTFT) of the points of a deployment left
out, on average by deployment, under `operators`; 74 and 79 % under `roofline`. One-sided, 80, 90 and 95 % hold 78, 87
and 93 % (TPOT), 78, 88 and 93 % (TTFT) under `operators`; 79, 86, 93 and 78, 89, 94 % under `roofline`. Deployments
differ much: 90 % hold 30 % of the points of TPOT of Qwen3.5 on B200, and all of others.
"""
import math
from typing import NamedTuple

import numpy as np

TPOT, TTFT = "tpot_ms", "ttft_ms"


class Errors(NamedTuple):
    """The errors of one backend by one metric.

    deployments : names of the data sets. points : their number. logarithms : at equally spaced shares, ascending.
    """

    deployments: tuple[str, ...]
    points: int
    logarithms: tuple[float, ...]

    def factor(self, share: float) -> float:
        """Return the factor from a prediction to a quantile of measured values.

        share : of the points below, 0 .. 1.
        """
        return math.exp(float(np.interp(share, np.linspace(0.0, 1.0, len(self.logarithms)), self.logarithms)))


WITH_TPOT = (
    "b200-llama-3.1-70b-fp8", "b200-qwen3.5-397b-sglang", "h100-qwen3-32b", "h200-deepseek-r1-sglang",
    "h200-gpt-oss-120b", "h200-gpt-oss-120b-trtllm", "h200-llama-3.1-70b-fp8", "h200-llama-3.1-70b-fp8-trtllm",
    "h200-minimax-m2.5-fp8", "rtx-pro-6000-llama-3.1-8b", "rtx-pro-6000-qwen3-32b")
WITH_TTFT = tuple(each for each in WITH_TPOT if each != "h100-qwen3-32b")      # its protocol is unknown
LEFT_OUT = {
    "operators": {
        TPOT: Errors(WITH_TPOT, 1138, (
            -0.414, -0.11, -0.077, -0.06, -0.042, -0.029, -0.019, -0.013, -0.008, -0.003, 0.003, 0.009, 0.02, 0.03,
            0.044, 0.058, 0.076, 0.12, 0.188, 0.246, 0.455)),
        TTFT: Errors(WITH_TTFT, 1048, (
            -0.279, -0.078, -0.034, -0.018, -0.009, 0.004, 0.022, 0.044, 0.061, 0.093, 0.132, 0.178, 0.213, 0.272,
            0.344, 0.391, 0.463, 0.572, 0.707, 0.903, 4.997)),
    },
    "roofline": {
        TPOT: Errors(WITH_TPOT, 1138, (
            -0.4, -0.21, -0.169, -0.144, -0.117, -0.075, -0.062, -0.041, -0.02, 0.017, 0.048, 0.077, 0.09, 0.099, 0.109,
            0.121, 0.137, 0.178, 0.214, 0.28, 0.521)),
        TTFT: Errors(WITH_TTFT, 1048, (
            -0.539, -0.077, -0.016, 0.058, 0.09, 0.128, 0.188, 0.226, 0.275, 0.357, 0.441, 0.545, 0.648, 0.693, 0.74,
            0.77, 0.871, 0.943, 1.13, 1.304, 5.417)),
    },
}


def factors(interval: float, backend: str = "operators") -> dict[str, tuple[float, float]]:
    """Return by metric the factors from a prediction to the ends of its interval.

    interval : share of the points within, 0 .. 1. backend : a key of `LEFT_OUT`.
    """
    return {metric: (errors.factor(0.5 - interval / 2), errors.factor(0.5 + interval / 2))
            for metric, errors in LEFT_OUT[backend].items()}
