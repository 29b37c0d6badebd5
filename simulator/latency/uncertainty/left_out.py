"""Errors of whole predictions on deployments left out.

ln(measured / predicted) of means of runs under `operators`, at shares 0, 0.05, .. 1 of the points, each deployment with
the same weight: the deployments of bench/accuracy without split pools, 1,138 points of TPOT and 1,048 of TTFT, November
2026. Host time, front end and unknown options are included. By the quantiles of the others, an interval of 80 % holds
84 % (TPOT) and 76 % (TTFT) of the points of a deployment left out, on average by deployment 73 and 77 %, from 22 to
100 %: few deployments differ much. Source: tools/left_out_errors.py.
"""
import math

import numpy as np

NUM_DEPLOYMENTS = {"tpot_ms": 11, "ttft_ms": 10}
LOGARITHMS = {
    "tpot_ms": (-0.414, -0.232, -0.164, -0.122, -0.098, -0.077, -0.053, -0.036, -0.021, -0.014, -0.008, -0.003, 0.004,
                0.018, 0.029, 0.047, 0.076, 0.135, 0.212, 0.287, 0.792),
    "ttft_ms": (-0.280, -0.108, -0.066, -0.021, -0.016, -0.004, 0.011, 0.033, 0.051, 0.086, 0.117, 0.167, 0.199, 0.272,
                0.329, 0.389, 0.482, 0.578, 0.729, 0.923, 4.997)}


def factors(interval: float) -> dict[str, tuple[float, float]]:
    """Return by metric the factors from a prediction to the ends of its interval.

    interval : share of the points within, 0 .. 1.
    """
    shares = np.linspace(0.0, 1.0, len(LOGARITHMS["tpot_ms"]))
    return {metric: tuple(math.exp(float(np.interp(share, shares, logarithms)))
                          for share in (0.5 - interval / 2, 0.5 + interval / 2))
            for metric, logarithms in LOGARITHMS.items()}
