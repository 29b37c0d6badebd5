"""From [model] to the facts of the model that it names."""
from importlib import import_module

from simulator.domain.facts import load_model
from simulator.domain.model_spec import ModelSpec


def model_of(section) -> ModelSpec:
    """Return the facts of the model that [model] names."""
    if not section.config:
        return load_model(section.name)
    return import_module("simulator.config.huggingface.reader").read_config(section.config)     # takes 11 ms
