"""Vision towers: items priced by the tables of products and of bidirectional attention."""
import numpy as np

from simulator.latency.operators.database import Database
from simulator.latency.operators.encoder_attention import encoder_ns


class TowerTables:
    """Times of the parts of a tower, on one rank.

    Parameters
    ----------
    parameters : OperatorsParameters
    deployment : Deployment
        Its model has a tower of known shape.
    """

    def __init__(self, parameters, deployment):
        self._database = Database(parameters, deployment.accelerator, deployment)
        self._tower = deployment.model.vision
        self._ranks = deployment.parallelism.tensor_parallel if self._tower.split_parameters else 1

    def product_ns(self, patches: np.ndarray) -> np.ndarray | None:
        """Return the times of all products over patches; None: not measured."""
        tower, ranks = self._tower, self._ranks
        width, inner = tower.width, tower.intermediate_size
        block = ((3 * width / ranks, width), (width, width / ranks), ((1 + tower.gated) * inner / ranks, width),
                 (width, inner / ranks))
        total = np.zeros(len(patches))
        for layers, (n, k) in [*((tower.num_layers, each) for each in block),
                               (1, (width, 3 * tower.frames * tower.patch_size ** 2))]:
            with np.errstate(divide="ignore", invalid="ignore"):
                times = self._database.gemm("bfloat16", n, k, patches)
            if times is None:
                return None
            total += layers * times.ns
        return total

    def attention_ns(self, patches: np.ndarray, pairs: np.ndarray) -> np.ndarray | None:
        """Return the times of attention in all layers; None: not measured.

        Items attend as patches^2 / pairs sequences of equal length.
        """
        tower, total = self._tower, np.zeros(len(patches))
        for window, layers in tower.layer_windows:
            lengths = np.minimum(window, patches) if window else pairs / patches
            ns = encoder_ns(self._database, tower.num_heads / self._ranks, tower.head_dim, lengths, patches / lengths)
            if ns is None:
                return None
            total += layers * ns
        return total
