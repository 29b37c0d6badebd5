"""Drafts in the executable model of SGLang 0.5.23 (../shared/reference/sglang_model.py), in plain Python.

Source: sglang 0.5.23, mem_cache/allocation_sizing.py, mem_cache/allocation.py (alloc_for_spec_decode),
managers/schedule_batch.py (new_tokens_required_next_decode, owned_kv_len), speculative/eagle_utils.py
(eagle_prepare_for_decode), scheduler_components/batch_result_processor.py (_resolve_spec_v2_tokens),
mem_cache/radix_cache.py (RadixKey.is_bigram).
"""
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Drafts:
    """Drafts of a server.

    per_decode : tokens that a request may write in a decode. verified : at once. reads_next : the tree of prefixes is
    one of pairs of tokens. accepted : (request id, verification) -> accepted drafts.
    """

    per_decode: int
    verified: int
    reads_next: bool
    accepted: object


def up(tokens, page):
    return -(-tokens // page) * page


def with_drafts(model, drafts):
    """Return the class `Sim` of the model's module, with drafts."""
    return type("Drafted", (_Drafted, model.Sim), {"drafts": drafts})


class _Drafted:
    evicted_tokens = 0

    @property
    def ev(self):
        """Tokens evicted so far; the model sets it to 0 at each pass, also at those that it does not log."""
        return self.evicted_tokens

    @ev.setter
    def ev(self, tokens):
        self.evicted_tokens = max(self.evicted_tokens, tokens)

    def key_of(self, tokens):
        """Return the key of a text, whole pages."""
        key = list(pairwise(tokens)) if self.drafts.reads_next else tokens
        return key[:len(key) // self.ps * self.ps]

    def adopt(self, request, tokens):
        request.prefix, request.node = self.tree.match(self.key_of(tokens))
        request.matched = min(request.prefix, max(len(request.ids) - 1, 0))

    def order(self):
        # the refresh of waiting requests matches as well, by whole texts
        match, self.tree.match = self.tree.match, lambda key: match(
            key if not key or isinstance(key[0], tuple) else self.key_of(key))
        super().order()
        del self.tree.match

    def checkpoint(self, request, upto):
        if self.tree.off or not upto:
            return
        key, prompt = self.key_of(request.ids[:request.fill][:upto]), self.key_of(request.prompt)
        priority = request.prio if self.prio else 0
        there, node = self.tree.insert(key, priority, request.ins) if key else (0, self.tree.root)
        request.ins = max(request.ins, len(key))
        self.free += max(there - request.prot, 0)
        if 0 < len(prompt) < len(key):
            self.tree.insert(prompt, priority + 1, len(prompt))
        if request.held:
            self.tree.lock(request.held, -1)
        self.tree.lock(node)
        request.held = request.node = node
        request.prot = len(key)

    def release(self, request, keep):
        owned = getattr(request, "committed", request.alloc)
        if keep:
            request.fill = len(request.ids)
            self.checkpoint(request, min(owned, len(request.prompt) + (
                request.done_len if request.done_len is not None else len(request.out))))
        self.free += up(request.alloc, self.ps) - request.prot
        if request.held:
            self.tree.lock(request.held, -1)
        request.held, request.kv = None, False
        self.rows += 1

    def room(self, request):
        return max(request.alloc, up(request.committed + 2 * self.drafts.per_decode, self.ps))

    def decode_fits(self, requests):
        need = sum(up(self.room(request), self.ps) - up(request.alloc, self.ps) for request in requests)
        self.evict(need)
        return self.free >= need

    def prepare_decode(self, batch):
        batch.extend, batch.dec = False, []
        need = sum(self.room(request) - request.alloc for request in batch.reqs)
        if need > 0:
            self.evict(need + (len(batch.reqs) * self.ps if self.ps > 1 else 0))
        for request in batch.reqs:
            self.take(request, self.room(request))

    def prefill(self):
        batch = super().prefill()
        for request, _, _ in batch.pre if batch else ():
            request.committed = request.end
        return batch

    def token(self, request, _):
        return request              # tokens follow when the result is processed

    def process(self, item):
        step, requests, _, is_extend, decoding, end = item
        self.t = max(self.t, end)
        before = {request for request in requests if request.ended()}
        for request in requests:
            if request.retracted or (request.ended() and (not is_extend or request.middle <= 0)):
                continue
            if is_extend and request.middle > 0:
                request.middle -= 1
                continue
            count = 1
            if not is_extend:
                request.verifications = getattr(request, "verifications", -1) + 1
                count += min(self.drafts.accepted(request.rid, request.verifications), self.drafts.verified - 1)
                request.committed += count
            for _ in range(count):
                self.emit(request, super().token(request, len(request.ids)))
                if request.ended():
                    break
            if is_extend and request in decoding and not request.ended():
                request.committed += 1
            if request.ended():
                self.release(request, True)
            elif is_extend and request not in decoding:
                self.checkpoint(request, request.end)
                request.prefix = request.end
        step["finished"] = [request.rid for request in requests if request.ended() and request not in before]
        step["processed"] = self.t
        step["free_end"], step["evictable_end"], step["protected_end"] = (
            self.free, self.tree.evictable, self.tree.protected)

    def run(self):
        """Return the steps; decodes have as many tokens as are verified."""
        steps, evicted = super().run(), 0
        for step in steps:
            if step["mode"] != "none" or step["retracted"] or step["preempted"]:
                step["evicted"], evicted = step["evicted"] - evicted, step["evicted"]
            if step["mode"] == "decode":
                step["prefill"] = [[name, 0, self.drafts.verified] for name in step["decode"]]
                step["decode"] = []
        return steps
