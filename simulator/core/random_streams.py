"""Random numbers by purpose: one independent stream per name, so that a new stream never disturbs an old one."""
import numpy as np


class RandomStreams:
    """The random streams of one run.

    Parameters
    ----------
    seed : int
        The seed of the experiment, >= 0.
    """

    def __init__(self, seed: int):
        self.seed = seed

    def generator(self, name: str) -> np.random.Generator:
        """Return a new generator at the start of stream `name`.

        The bytes of the name are the spawn key of a `SeedSequence`: no registration, no order, no hash to collide.
        """
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=tuple(name.encode()))))
