"""Architectures that are refused or read as others: poolers on decoders, encoders, encoders with a decoder."""
from collections.abc import Container

from simulator.config.huggingface.keys import Keys

# Suffixes of a decoder with another head: embedding, classification, reward. Source: vLLM 0.33, vllm/config/model.py.
POOLED = ("ForSequenceClassification", "ForTokenClassification", "ForRewardModeling", "ForProcessRewardModel",
          "ForRewardModel", "ForTextEncoding", "Model")
SUFFIXES = (*POOLED, "ForMaskedLM", "ForConditionalGeneration")
OTHER_ENCODERS = {"ModernBert", "NomicBert", "DistilBert", "Electra", "DebertaV2", "Gte", "GteNew", "MPNet", "CLIP",
                  "Siglip"}
ENCODER_DECODERS = {"Whisper", "T5", "MT5", "UMT5", "T5Gemma", "Bart", "MBart", "Pegasus", "M2M100", "Marian",
                    "Florence2", "SeamlessM4T"}
WHY_NO_ENCODER = ("an encoder with parts that are not built: other positions, windows or inputs than BERT's; BERT, "
                  "RoBERTa and XLM-RoBERTa are taken, and embedding models on a decoder, as Qwen3-Embedding, with "
                  "engine.task = \"pooling\"")
WHY_NO_ENCODER_DECODER = ("an encoder with a decoder: each layer of the decoder reads a cache of the encoder's outputs "
                          "beside its own, and neither its blocks nor its prices are built")

# Architectures that generate and are refused for a reason of their own.
NOT_READ = {
    "Step3p7FlashForCausalLM": "a reduced form without attention_other_setting, the heads of windowed layers; the "
                               "hub's config.json has Step3p7ForConditionalGeneration",
    "Zamba2ForCausalLM": "layers of attention share their weights with each other, which no kind of layer here does",
}


def decoder_of(architecture: str, families: Container[str]) -> str | None:
    """Return the decoder behind the pooler of an architecture; None: it has none."""
    names = (f"{architecture.removesuffix(suffix)}ForCausalLM" for suffix in POOLED if architecture.endswith(suffix))
    return next((name for name in names if name in families), None)


def encoder_of(architecture: str, encoders: Container[str]) -> str | None:
    """Return the encoder of an architecture with any head; None: another."""
    names = (architecture.removesuffix(suffix) for suffix in SUFFIXES if architecture.endswith(suffix))
    return next((name for name in names if name in encoders), None)


def why_not(architecture: str) -> str:
    """Return why an architecture is refused; "": there is no such reason."""
    if architecture in NOT_READ:
        return NOT_READ[architecture]
    bases = {architecture.removesuffix(suffix) for suffix in SUFFIXES if architecture.endswith(suffix)}
    if bases & OTHER_ENCODERS:
        return WHY_NO_ENCODER
    return WHY_NO_ENCODER_DECODER if bases & ENCODER_DECODERS else ""


def check_direction(keys: Keys) -> None:
    """Refuse decoders with attention in both directions, as of some embedding models."""
    for name, plain in (("is_causal", True), ("use_bidirectional_attention", False)):
        value = keys.get(name, plain)
        if value is not plain and value != "vision":        # Gemma 4: images alone
            keys.fault(name, "attention in both directions is not supported: it keeps no KV cache, and has no price")
