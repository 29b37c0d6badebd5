"""A batch that Python can build and read: for predictions by hand and for latency models written in Python."""
from cpython.mem cimport PyMem_Calloc, PyMem_Free


cdef class BatchView:
    """The sums of one batch, read-only; fields as in simulator/domain/batch.pxd.

    Parameters
    ----------
    prefill : sequence of (tokens, context) or (tokens, context, prompt_tokens)
        Prompt tokens computed now, tokens of the request already in the KV cache, and tokens of its whole
        prompt. A chunk that ends its prompt samples a token; without the third number it ends its prompt.
    decode : sequence of int
        For each decoding sequence, the tokens in the KV cache after this iteration.
    tokens_per_decode : int
        Tokens computed for each decoding sequence: 1, or 1 + drafts under speculative decoding.
    """

    def __init__(self, prefill=(), decode=(), int tokens_per_decode=1):
        prefill, decode = [_whole(chunk) for chunk in prefill], list(decode)
        _check(prefill, decode, tokens_per_decode)
        self.shape.num_chunks = len(prefill)
        self.shape.num_decodes = len(decode)
        self.shape.num_sequences = len(prefill) + len(decode)
        self.shape.num_samples = len(decode)
        self.shape.decode_tokens = len(decode) * tokens_per_decode
        self.shape.context_tokens = sum(decode)
        if decode and tokens_per_decode == 1:
            self.shape.below_longest_tokens = len(decode) * max(decode) - self.shape.context_tokens
            self.shape.above_shortest_tokens = self.shape.context_tokens - len(decode) * min(decode)
        self._chunks = <Chunk*>PyMem_Calloc(max(1, len(prefill)), sizeof(Chunk))
        if self._chunks == NULL:
            raise MemoryError()
        self.shape.chunks = self._chunks
        for i, (tokens, context, prompt) in enumerate(prefill):
            self._chunks[<Py_ssize_t>i] = Chunk(tokens, context, prompt)
            self.shape.num_samples += tokens + context == prompt
            self.shape.prefill_tokens += tokens
            self.shape.prefill_context_tokens += context
            self.shape.prefill_token_pairs += tokens * (2 * context + tokens + 1)

    def __dealloc__(self):
        PyMem_Free(self._chunks)

    cdef void show(self, const BatchShape* shape) noexcept:
        self.shape = shape[0]

    cdef void hide_chunks(self) noexcept:
        self.shape.chunks = NULL

    @property
    def num_sequences(self) -> int:
        """Scheduled sequences, prefilling and decoding."""
        return self.shape.num_sequences

    @property
    def num_decodes(self) -> int:
        """Sequences that decode."""
        return self.shape.num_decodes

    @property
    def num_chunks(self) -> int:
        """Sequences that prefill."""
        return self.shape.num_chunks

    @property
    def num_samples(self) -> int:
        """Sequences that sample a token at the end of the iteration."""
        return self.shape.num_samples

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens computed."""
        return self.shape.prefill_tokens

    @property
    def decode_tokens(self) -> int:
        """Tokens computed for decoding sequences."""
        return self.shape.decode_tokens

    @property
    def context_tokens(self) -> int:
        """Sum over decoding sequences of tokens in KV after this iteration."""
        return self.shape.context_tokens

    @property
    def prefill_context_tokens(self) -> int:
        """Sum over chunks of tokens in KV before them."""
        return self.shape.prefill_context_tokens

    @property
    def prefill_token_pairs(self) -> int:
        """Twice the (query, key) pairs of causal attention over the chunks."""
        return self.shape.prefill_token_pairs

    @property
    def chunks(self) -> list:
        """List of (tokens, context_tokens, prompt_tokens) of the prompt chunks."""
        if self.shape.chunks == NULL:
            return []
        return [
            (self.shape.chunks[i].tokens, self.shape.chunks[i].context_tokens, self.shape.chunks[i].prompt_tokens)
            for i in range(self.shape.num_chunks)
        ]


def _whole(chunk):
    """Return (tokens, context, prompt_tokens) of a chunk."""
    chunk = tuple(chunk)
    if len(chunk) not in (2, 3):
        raise ValueError(f"prefill: expected (tokens, context) or (tokens, context, prompt_tokens), found {chunk}")
    return chunk if len(chunk) == 3 else (*chunk, sum(chunk))


def _check(list prefill, list decode, int tokens_per_decode):
    """Raise ValueError for a batch that no engine could schedule."""
    if tokens_per_decode < 1:
        raise ValueError(f"tokens_per_decode: expected an integer >= 1, found {tokens_per_decode}")
    for tokens, context, prompt in prefill:
        if tokens < 1 or context < 0:
            raise ValueError(f"prefill: expected (tokens >= 1, context >= 0), found ({tokens}, {context})")
        if prompt < tokens + context:
            raise ValueError(f"prefill: expected prompt_tokens >= {tokens} + {context}, found {prompt}")
    for context in decode:
        if context < 1:
            raise ValueError(f"decode: expected context >= 1, found {context}")
    if not prefill and not decode:
        raise ValueError("a batch needs at least one sequence")
