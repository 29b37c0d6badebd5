"""The random numbers of Vidur: Python's and NumPy's global generators, seeded once before requests are made."""
import random

import numpy as np


class Draws:
    """Both generators in the state after Vidur's `set_seeds`; all draws share them."""

    def __init__(self, seed: int):
        self.python = random.Random(seed)
        self.numpy = np.random.RandomState(seed)
