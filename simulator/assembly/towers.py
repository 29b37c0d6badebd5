"""Vision towers and workloads: the rule of tokens of images and videos, and images that no encoder computes."""
from collections.abc import Iterable

from msgspec.structs import replace

from simulator.assembly.site import Site
from simulator.config.experiment import Experiment
from simulator.domain.towers import Tower
from simulator.errors import InputErrors, KeyFault
from simulator.workload.base import Workload


def tower_of(sites: Iterable[Site], key: str) -> Tower:
    """Return the vision tower of the model of all pools.

    key : of the workload, that needs it.

    Raises
    ------
    InputErrors
        A pool names no model, or one without a tower of known shape; pools have different towers.
    """
    models = {site.model.name: site.model for site in sites if site.model is not None}
    if not models:
        raise InputErrors([KeyFault(f"{key}: needs [model]: its vision tower says how many tokens a size is")])
    for name, model in models.items():
        if model.vision is None:
            why = "has no vision tower"
            if model.unknown_towers:
                why = f"has an encoder of unknown kind, {', '.join(model.unknown_towers)}"
            elif model.vision_parameters:
                why = "has a vision tower of unknown shape"
            raise InputErrors([KeyFault(f"{key}: {name} {why}, and no rule for sizes in pixels; give tokens, "
                                        'workload.images.rule = "tokens_per_image"')])
    towers = {model.vision for model in models.values()}
    if len(towers) > 1:
        raise InputErrors([KeyFault(f"{key}: {' and '.join(models)} have different vision towers, and count the tokens "
                                    "of a size by different rules; give tokens")])
    return towers.pop()


def with_encoder_notes(workload: Workload, experiment: Experiment, sites: Iterable[Site]) -> Workload:
    """Return the workload, with a note if its images cost no time.

    A model without a tower needs none.
    """
    if workload.items is None or experiment.encode_pools() or not any(
            site.model is not None and site.model.vision is not None
            and getattr(site.pool.engine.parameters, "encoder", None) is None for site in sites):
        return workload
    return replace(workload, notes=(*workload.notes, (
        "encoder: no time is counted for the images of prompts, which take up their tokens alone: there is no "
        "[engine.encoder]")))
