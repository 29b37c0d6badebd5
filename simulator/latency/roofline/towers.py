"""Time of vision towers: the roofline's law, from bytes and operations, or tables of operators."""
import numpy as np

from simulator.domain.deployment import Deployment
from simulator.domain.efficiency import compute_dtype, efficiency_of, matmul_efficiency
from simulator.domain.items import Items
from simulator.domain.rank_weights import tower_parameters
from simulator.latency.roofline.kind_laws import TOWER, kind_law
from simulator.latency.roofline.laws import generation_of

QKVO = 4                        # vectors that attention reads and writes for a patch: queries, keys, values, outputs


class TowerTimes:
    """Times of the tower of a model on the accelerators of a replica.

    An item takes the larger of the times of its operations and its bytes, in 16 bit, and the time of its attention. A
    batch takes no less than reading the weights once. Ranks divide what vLLM splits (`Tower.rank_parameters`).

    deployment : its model has a tower of known shape. It names the accelerator.
    tables : times of products and of attention, as operators/towers.py has them; None: the law prices all. The
        projector and activations that are moved have prices of the law in any case.
    """

    def __init__(self, deployment: Deployment, tables=None):
        model, accelerator, ranks = deployment.model, deployment.accelerator, deployment.parallelism.tensor_parallel
        shares, dtype = efficiency_of(accelerator), deployment.activation_dtype
        peak = accelerator.flops_per_s(dtype) * 1e-9
        self.tower = model.vision
        held = tower_parameters(model, ranks)
        self.share = held / model.vision_parameters
        self.element_bytes = deployment.activation_bytes
        self.bytes_per_ns = accelerator.memory_bandwidth_bytes_per_s * 1e-9 * shares.bandwidth_frac
        self.product_rate = peak * matmul_efficiency(shares, compute_dtype(accelerator, dtype))
        law = kind_law(generation_of(accelerator)[0], TOWER).prefill
        self.attention_rate = peak * (law.compute_frac if law else shares.attention_frac)
        bandwidth = accelerator.memory_bandwidth_bytes_per_s * 1e-9
        self.attention_bytes_per_ns = bandwidth * law.memory_frac if law else np.inf
        self.least_ns = held * self.element_bytes / self.bytes_per_ns
        self.tables, one = tables, np.ones(1)
        self.has_products = tables is not None and tables.product_ns(one) is not None
        self.has_attention = tables is not None and tables.attention_ns(one, one) is not None
        self.notes = self._notes(model.name, ranks)

    def _notes(self, model: str, ranks: int) -> tuple[str, ...]:
        tabled = [name for name, is_tabled in (("products", self.has_products), ("attention", self.has_attention))
                  if is_tabled]
        of_tables = f"tables price its {' and '.join(tabled)}; all else has " if tabled else "it has "
        return (f"encoder: the tower of {model}: {of_tables}prices of the roofline, from operations and bytes of its "
                f"{self.tower.num_layers} blocks and its projector; launches of its kernels"
                f"{' and all-reduces' if ranks > 1 else ''} have none",)

    def item_ns(self, items: Items) -> np.ndarray:
        """Return the time of encoding each item, float64 (items,).

        An item of unknown size counts as one image: as many patches as its tokens were merged from.
        """
        tokens = items.table["tokens"].astype(np.float64)
        patches, pairs = tokens * self.tower.merge_size ** 2, np.zeros(len(tokens))
        known = np.zeros(len(tokens), bool)
        if items.work is not None:
            known = items.work["patches"] > 0
            patches[known], pairs[known] = items.work["patches"][known], items.work["pairs"][known]
        pairs[~known] = patches[~known] ** 2
        tower, share = self.tower, self.share
        moved = tower.moved_elements(patches, tokens) * self.element_bytes * share / self.bytes_per_ns
        if self.has_products:
            products = self.tables.product_ns(patches) + moved + (
                tower.product_flops(0.0, tokens) * share / self.product_rate)
        else:
            products = np.maximum(tower.product_flops(patches, tokens) * share / self.product_rate, moved)
        if self.has_attention:
            return products + self.tables.attention_ns(patches, pairs)
        moved = QKVO * tower.num_layers * tower.width * patches * self.element_bytes * share
        return products + np.maximum(
            tower.attention_flops(patches, pairs) * share / self.attention_rate, moved / self.attention_bytes_per_ns)


def tower_times(deployment: Deployment | None, backend=None, parameters=None) -> TowerTimes | None:
    """Return the times of the tower of a model on its accelerator.

    None: either is not named, or the tower has no known shape.

    backend, parameters : latency backend of the pool; if it has tables of towers they are used.
    """
    if deployment is None or deployment.accelerator is None or deployment.model.vision is None:
        return None
    tables = getattr(backend, "tower_tables", None)
    return TowerTimes(deployment, tables and tables(parameters, deployment))
