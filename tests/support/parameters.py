"""Weights of a model, counted as its publishers count them."""


def active_parameters(model):
    """Return the weights that one token uses; the input embedding is counted whole."""
    if model.moe is None:
        return model.num_parameters
    idle = model.moe.num_experts - model.moe.experts_per_token
    return model.num_parameters - model.num_moe_layers * idle * model.moe.expert.num_parameters(model.hidden_size)


def published_scope_parameters(model):
    """Return the weights that `published.parameters` counts."""
    extra = {"vision": model.vision_parameters, "mtp": model.mtp_parameters}
    return model.num_parameters + sum(extra[part] for part in (model.published.includes if model.published else ()))
