"""Weights of a model, counted as its publishers count them."""


def active_parameters(model):
    """Return the weights that one token uses; the input embedding is counted whole."""
    if model.moe is None:
        return model.num_parameters
    idle = model.moe.num_experts - model.moe.computed_per_token
    return model.num_parameters - model.num_moe_layers * idle * model.moe.expert_parameters(model.hidden_size)


def mtp_parameters(model):
    """Return the weights of MTP modules: each a last layer, a 2-to-1 projection, 3 norms."""
    last = model.layer_parameters(model.num_layers - 1)
    return model.num_mtp_layers * (last + 2 * model.hidden_size ** 2 + 3 * model.norm_parameters)


def published_scope_parameters(model):
    """Return the weights that `published.parameters` counts."""
    extra = {"vision": model.vision_parameters, "mtp": mtp_parameters(model)}
    return model.num_parameters + sum(extra[part] for part in (model.published.includes if model.published else ()))
