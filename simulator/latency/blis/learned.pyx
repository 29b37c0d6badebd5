"""Base of the backends with learned prices."""
from simulator.latency.blis.coefficients import choose


cdef class LearnedModel(LatencyModel):
    """A backend with fitted coefficients: a published set, or the user's own.

    The last alpha is part of each inter-token gap, not of an iteration: E2E is TTFT and the sum of gaps.
    Source: inference-sim, docs/concepts/core-engine.md, Alpha Overhead; sim/simulator.go.

    context_note : note on the price of a prompt's context, as published; set by a subclass.
    """

    delays_add_up = True
    context_note = ""

    def __init__(self, dict sets, parameters, deployment, default):
        """Choose the coefficients.

        Parameters
        ----------
        sets : published sets, coefficients.Fit by name.
        parameters : subclass of coefficients.LearnedParameters, with `beta`.
        deployment : Deployment or None
        default : name of the set for an experiment that gives neither set nor beta; None: there is none.
        """
        self.choice = choose(sets, parameters, default)
        self._deployment = deployment
        self.is_shareable = True        # a call writes nothing but the note of context, which is never taken back

    def host_terms(self) -> dict:
        """Return the keys of [latency.host] that the coefficients give, in microseconds.

        Source: inference-sim, sim/latency, QueueingTime and OutputTokenProcessingTime of blackbox and crossmodel.
        """
        request_us, prompt_token_us, output_token_us = self.choice.fit.alpha
        return {"queue_base_us": request_us, "queue_per_prompt_token_us": prompt_token_us,
                "output_token_us": output_token_us}

    def provenance(self) -> dict:
        """Return the source of the coefficients."""
        return self.choice.provenance()

    def warnings(self) -> list:
        """Return the respects in which deployment and batches lie outside the fit."""
        notes = [self.context_note] if self._had_context else []
        return self.choice.warnings(self._deployment) + notes
