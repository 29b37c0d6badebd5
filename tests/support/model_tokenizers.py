"""A small tokenizer.json: byte-level BPE of a few words, as those of large models."""
import pytest

pytest.importorskip("tokenizers", reason="tokenizers is in the extra of that name")
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

WORDS = ["the", "one", "two", "three", "hello", "there", "and", "so", "it", "was", "said", "by", "all", "of", "them"]
BEGIN = "<s>"


def trained(words=WORDS):
    """Return a tokenizer that knows words, with a blank before them and without, and begins texts with `BEGIN`."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.train_from_iterator([" ".join(words), *words] * 3, trainers.BpeTrainer(
        vocab_size=400, special_tokens=[BEGIN], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    made.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, made.token_to_id(BEGIN))])
    return made
