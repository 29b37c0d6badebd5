"""Speculative decoding, [engine.speculative]: conflicts, counts of drafts in the summary."""
from simulator.assembly.parts import features as used
from simulator.assembly.parts.base import Part
from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature, Place
from simulator.results.speculation import metrics_of
from simulator.results.summary_keys import keys_of

DRAFTS = Feature("drafts", "engine.speculative")
DRAFT_MODEL = Feature("draft models", "engine.speculative.model", value=lambda place: (
    (drafts := getattr(place.engine.parameters, "speculative", None)) and (drafts.model or drafts.config)))

SGLANG_DRAFTS = Feature("drafts of SGLang", "engine.speculative", value=lambda place: (
    place.engine.scheduler == "sglang" and place.engine.parameters.speculative))


def _why_unpriced(place: Place) -> str:
    drafts = place.engine.parameters.speculative
    return "" if drafts.has_price or place.backend.prices_any_model else (
        "it has no prices of another model: expected drafter_share or drafter_forward_us beside it, or one of the "
        'backends "roofline", "operators" and "step_roofline"')


def _why_no_tiers(place: Place) -> str:
    return "" if used.protocol_of(place).takes_drafts else (
        'its rules are not settled with drafts; those of "vllm_offload" are')


class Speculation(Part):
    """Drafts, by the schedulers that verify them."""

    conflicts = (
        Conflict(DRAFTS, has.DIVIDED_PROMPTS, "vLLM refuses it"),
        Conflict(has.POOLING, DRAFTS, "pooling has no output, and drafts would be of none"),
        Conflict(DRAFT_MODEL, has.SHARED_CONTEXT, "sharing of a draft model's KV is not supported"),
        Conflict(DRAFT_MODEL, has.BACKEND, _why_unpriced, "a backend has no prices of another model"),
        Conflict(DRAFTS, used.VLLM_TIERS, _why_no_tiers, 'only the rules of "vllm_offload" are settled with drafts'),
        Conflict(SGLANG_DRAFTS, has.ROLES, "states of the drafter travel with KV, and decode replicas reserve KV by "
                 "num_reserved_decode_tokens; neither is built with drafts"),
        Conflict(SGLANG_DRAFTS, used.KV_TIERS, "copies in host memory are found by tokens alone, and SGLang's beside "
                 "drafts by pairs of tokens; that is not built"),
        Conflict(SGLANG_DRAFTS, has.SGLANG_GRAMMARS, "the host advances grammars over accepted drafts while drafts are "
                 "verified; that is not built"),
        Conflict(SGLANG_DRAFTS, used.LOCK_STEP, "SGLang lets no rank decode while another computes prompts; that is "
                 "not built"),
        Conflict(Feature("hashes of blocks without the token behind",
                         "engine.speculative.disable_lookahead_block_hashes", False),
                 used.VLLM_TIERS, "with a KV connector vLLM has these hashes anyway"),
    )
    summary_before = "by_slo_class"
    summary_keys = {
        **keys_of(speculation__num_drafts="verify steps"),
        **keys_of("tokens", speculation__num_draft_tokens="verified", speculation__num_invalid_spec_tokens="drafted "
                  "and not verified, since a grammar rejects them", speculation__num_accepted_tokens="accepted",
                  speculation__mean_acceptance_length="tokens per draft, with the token behind it"),
        **keys_of(speculation__acceptance_rate="accepted over verified",
                  speculation__num_accepted_tokens_per_pos="accepted, by position in the draft",
                  speculation__per_position_acceptance_rates="accepted share of the drafts, by position")}

    def summary(self, run, summary: dict) -> dict:
        """See Part."""
        return metrics_of(run)
