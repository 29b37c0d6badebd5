"""From [model] to the facts of the model that it names."""
from simulator.domain.facts import load_model
from simulator.domain.model_spec import ModelSpec


def model_of(section) -> ModelSpec:
    """Return the facts of the model that [model] names."""
    if not section.config:
        return load_model(section.name)
    from simulator.config.huggingface.reader import read_config  # import takes 11 ms

    return read_config(section.config)
