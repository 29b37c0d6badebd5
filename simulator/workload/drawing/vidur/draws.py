"""The random numbers of Vidur: Python's and NumPy's global generators, seeded alike before requests are made."""
import random

import numpy as np


class Draws:
    """Both generators as Vidur's `set_seeds` leaves them; all draw from them in turns."""

    def __init__(self, seed: int):
        self.python = random.Random(seed)
        self.numpy = np.random.RandomState(seed)
