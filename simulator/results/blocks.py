"""The size of the blocks in which tables of results are read, and their form."""
import numpy as np

BLOCK_ROWS = 1 << 17            # of columns of 8 bytes: 1 MiB each

Columns = dict[str, np.ndarray]
