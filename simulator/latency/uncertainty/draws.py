"""Which error each operator has in each replication: a Latin hypercube.

Each operator has every one of N equally likely parts of its distribution once, in an order of its own. So few
replications cover the whole of each, whatever their number of operators. The order is a random stream by name: one more
operator leaves those of the others as they are. (McKay, Beckman and Conover, Technometrics 21(2), 1979, section 2, with
the middle of each part.)
"""
import numpy as np

from simulator.core.random_streams import RandomStreams


def positions(streams: RandomStreams, name: str, num_replications: int) -> np.ndarray:
    """Return an operator's place in its distribution, 0 .. 1, in each replication."""
    order = streams.generator(f"uncertainty of {name}").permutation(num_replications)
    return (order + 0.5) / num_replications
