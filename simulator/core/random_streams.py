"""Random numbers by purpose: one independent stream per name, so that a new stream never disturbs an old one."""
import numpy as np


class RandomStreams:
    """The random streams of one run.

    Parameters
    ----------
    seed : int
        The seed of the experiment, >= 0.
    prefix : str
        In front of all names.
    """

    def __init__(self, seed: int, prefix: str = ""):
        self.seed = seed
        self._prefix = prefix

    def generator(self, name: str) -> np.random.Generator:
        """Return a new generator at the start of stream `name`.

        The bytes of the name are the spawn key of a `SeedSequence`: no registration, no order, no hash to collide.
        """
        key = tuple((self._prefix + name).encode())
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=key)))

    def generator_after(self, name: str, count: int) -> np.random.Generator:
        """Return a new generator in stream `name`, behind `count` numbers.

        Numbers of `Generator.random`.
        """
        generator = RandomStreams.generator(self, name)
        generator.bit_generator.advance(count)
        return generator
