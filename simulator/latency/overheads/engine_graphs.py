"""CUDA graphs of engines that capture whole decodes, and launch the kernels of other batches one by one."""
from typing import NamedTuple

from simulator.domain.deployment import Deployment
from simulator.latency.base import LatencyModel
from simulator.latency.overheads.graphs import Graphs
from simulator.latency.overheads.launches import HOSTS, Launching, launching

NO_GRAPHS = "none"
OF_DECODES = "full_decode_only"


class EngineGraphs(NamedTuple):
    """The graphs of an engine.

    sizes : sequences of decode graphs, ascending; empty: decodes have none.
    has_prefill : batches with prompts have graphs, too.
    eager_us_per_layer : minimum time per layer of a batch without graphs; None: by the number of kernels.
    scheduler : of [engine]. notes : sentences for `warnings`.
    verified : tokens of a sequence in a decode; more than 1 with drafts.
    are_given : the experiment gives the sizes. runs_beyond : decodes may have more sequences than the largest size.
    """

    sizes: tuple[int, ...]
    has_prefill: bool
    eager_us_per_layer: float | None
    scheduler: str
    notes: tuple[str, ...] = ()
    verified: int = 1
    are_given: bool = False
    runs_beyond: bool = False


def with_graphs(graphs: EngineGraphs, deployment: Deployment | None, model: LatencyModel) -> LatencyModel:
    """Return a model that prices padding to graphs, and launches without.

    Decodes are padded; a batch without graph takes the host's time to launch its kernels, if that is longer. A
    backend that predicts whole iterations stays as it is, unless eager_us_per_layer or the sizes are given.

    Raises
    ------
    ValueError
        eager_us_per_layer is given, without a model or for a backend that prices no padding.
    """
    given = graphs.eager_us_per_layer
    if given is not None and deployment is None:
        raise ValueError("eager_us_per_layer: needs the layers of [model]")
    if given is not None and not model.takes_padding:
        raise ValueError(f"eager_us_per_layer: expected none, {type(model).__name__} cannot price batches without "
                         "graphs: linear, roofline and operators can")
    knows_launches = model.knows_kernels and deployment is not None and model.takes_collective
    if given is None and not graphs.are_given and not knows_launches:
        return model
    launch = Launching(0.0, 0.0)
    if (not graphs.has_prefill or graphs.runs_beyond) and given is not None:
        launch = Launching(given * deployment.model.num_layers, given * deployment.model.num_layers)
    elif (not graphs.has_prefill or graphs.runs_beyond) and knows_launches:
        launch = launching(deployment, HOSTS[graphs.scheduler])
    sizes = [graphs.verified * size for size in graphs.sizes]
    found = Graphs(model, OF_DECODES if sizes else NO_GRAPHS, sizes, graphs.verified, 0.0,
                   launch._replace(notes=(*launch.notes, *graphs.notes)))
    if graphs.has_prefill:
        found.hide_prompts()
    return found
