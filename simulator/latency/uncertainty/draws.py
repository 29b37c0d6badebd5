"""Errors of the operators in each replication, drawn as a Latin hypercube.

Each operator takes each of N equally likely parts of its distribution once, in its own random order. So few
replications cover the distribution of every operator, for any number of operators. The order comes from a random stream
by name: an additional operator does not change the others'. (McKay, Beckman and Conover, Technometrics 21(2), 1979,
section 2, with the middle of each part.)
"""
import numpy as np

from simulator.core.random_streams import RandomStreams


def positions(streams: RandomStreams, name: str, num_replications: int) -> np.ndarray:
    """Return the quantile, 0 .. 1, of an operator's error in each replication."""
    order = streams.generator(f"uncertainty of {name}").permutation(num_replications)
    return (order + 0.5) / num_replications
