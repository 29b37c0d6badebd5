"""Prices of drafters that no facts file describes: of the model's own layers, or as given."""
from simulator.domain.deployment import Deployment
from simulator.domain.measured_acceptance import of_model
from simulator.scheduling.drafters import OF_THE_MODEL, acceptance_of, head_us, layer_share, one_pass_rows


def price_of(given, deployment: Deployment | None) -> tuple[float, float]:
    """Return the share and the microseconds of a drafter's forward pass.

    given : DraftKeys. deployment : None where the experiment has no [model] or no [hardware].

    Raises
    ------
    ValueError
        The drafter's time follows from the model, and there is none.
    """
    share, forward_us = given.drafter_share, given.drafter_forward_us
    if share is None and given.method in OF_THE_MODEL and forward_us is None:
        if deployment is None:
            raise ValueError("speculative.drafter_share: missing; expected a number, or drafter_forward_us, since "
                             "without [model] it cannot be derived")
        share = layer_share(deployment.model, given.method)
    if given.method == "medusa" and forward_us is None:
        if deployment is None or deployment.accelerator is None:
            raise ValueError("speculative.drafter_forward_us: missing; expected a number, since without [model] and "
                             "[hardware] the time of reading a head is unknown")
        forward_us = head_us(deployment)
    return share or 0.0, forward_us or 0.0


def shaped(drafter, given):
    """Return a Drafter, with its passes as drafts are made.

    given : DraftKeys.
    """
    drafter.drafts_first, drafter.width, drafter.one_pass_rows = given.drafts_first, given.width, one_pass_rows(given)
    return drafter


def published_notes(given, deployment: Deployment | None) -> list[str]:
    """Return a note on published acceptance of the model, if another's is taken."""
    own = of_model(deployment.model.name, given.method) if deployment is not None else []
    if not own or given.acceptance != acceptance_of(given.method, given.num_tokens):
        return []
    return [f"speculative: acceptance.measured may name figures of {deployment.model.name}: {', '.join(own)}"]
