"""SGLang's drafts. Source: sglang 0.5.23, sglang/srt/arg_groups/speculative_hook.py."""
from simulator.server_line.facts.answers import Work
from simulator.server_line.facts.checkpoints import Checkpoint

RUNNING = 48                        # sequences of a server with drafts, if not given
WIDE = ("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM")
NGRAM_DRAFTS = 12


def resolve_speculation(work: Work, checkpoint: Checkpoint) -> None:
    """Set steps, top-k and drafts of the algorithm, and the sequences beside them."""
    algorithm = work.get("speculative_algorithm")
    if algorithm is None:
        return
    if algorithm == "NEXTN":
        algorithm = work.set("speculative_algorithm", "EAGLE", "engine", "NEXTN is EAGLE with the model's own layer")
    if work.get("max_running_requests") is None:
        work.set("max_running_requests", RUNNING, "engine", "with drafts")
    if algorithm == "NGRAM":
        _resolve_ngram(work)
        return
    if algorithm == "STANDALONE":
        work.set("enable_mixed_chunk", False, "engine", "drafts by a draft model")
    if work.get("speculative_draft_model_path") is None:
        work.set("speculative_draft_model_path", work.get("model_path"), "engine", "the model's own MTP layer")
    if work.get("speculative_num_steps") is None:
        wide = checkpoint.architecture in WIDE and algorithm != "STANDALONE"
        steps, width, drafts = (5, 4, 8) if wide else (3, 1, 4)
        for key, value in (("num_steps", steps), ("eagle_topk", width), ("num_draft_tokens", drafts)):
            work.set(f"speculative_{key}", value, "engine", f"for {checkpoint.architecture}")


def _resolve_ngram(work: Work) -> None:
    work.set("enable_mixed_chunk", False, "engine", "drafts by n-gram")
    work.set("speculative_eagle_topk", work.flag("speculative_ngram_max_bfs_breadth", 10))
    if work.get("speculative_num_draft_tokens") is None:
        work.set("speculative_num_draft_tokens", NGRAM_DRAFTS)
    if work.get("speculative_num_steps") is None:
        drafts, width = work.get("speculative_num_draft_tokens"), work.get("speculative_eagle_topk")
        work.set("speculative_num_steps", drafts // width)
