"""All-reduces over PCIe: a server's link may be slower than that of the machine with the tables.

Cards that reach each other peer to peer behind one switch move twice to three times the bytes of cards that go through
host memory: two RTX PRO 6000 moved 39 GB/s each in the table of vLLM 0.24.0, 15 GB/s in that of 0.19.0
(aiconfigurator-core 0.12.0, the largest messages), and LLMServingSim's authors give their server 16 GB/s. So a message
takes longer by its bytes at the rate of [hardware], or of the node, where that is slower; a link reaches
LINK_EFFICIENCY of its data sheet.
"""
import numpy as np

from simulator.latency.operators.curves import INTERPOLATED, Times

LEAST_BYTES = 1 << 20           # of the largest message: latency hides the rate of smaller ones
LEAST_DIFFERENCE = 0.9          # a link this near to the tables' is theirs


def over_link(times: Times, num_bytes: np.ndarray, ranks: int, link_bytes_per_ns: float) -> tuple[Times, float]:
    """Return all-reduces over a server's link, and the tables' bytes/ns.

    num_bytes : of each message, increasing. link_bytes_per_ns : that a rank sends of it.
    """
    sent = 2 * (1 - 1 / ranks) * num_bytes
    measured = float(sent[-1] / times.ns[-1])
    if link_bytes_per_ns >= LEAST_DIFFERENCE * measured:
        return times, measured
    return Times(times.ns + sent * (1 / link_bytes_per_ns - 1 / measured),
                 np.maximum(times.origins, INTERPOLATED)), measured
