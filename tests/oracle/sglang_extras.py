"""LoRA adapters and grammars in the executable model of SGLang 0.5.23 (../shared/reference/sglang_model.py).

Source: sglang 0.5.23, managers/scheduler.py (_get_new_batch_prefill_raw, can_schedule_lora_req), lora/lora_manager.py
(validate_lora_batch), managers/schedule_batch.py (Req.__init__: the adapter is a part of extra_key),
constrained/grammar_manager.py, constrained/base_grammar_backend.py. Polls of grammars take no time.
"""
from support import reference

# Calls of the rules below, as (text of the model, text with the call).
CHANGES = (
    ('            if s.state(a) == "stop": break\n',
     '            if s.state(a) == "stop": break\n            if not s.has_place(a, q): continue\n'),
    ("p = s.prompts[r[\"id\"]]; cap", "p = s.keyed(r, s.prompts[r[\"id\"]]); cap"),
    ("q.prompt = [0]; q.abort", "q.prompt = s.keyed(r, [0]); q.abort"),
    ("            s.enqueue(q)\n    def enqueue", "            s.receive(q)\n    def enqueue"),
    ("        run, o = s.running, s.o\n        if s.preempt",
     "        run, o = s.running, s.o; s.collect()\n        if s.preempt"),
)
ADAPTER = 1 << 40               # beyond all tokens of the model


def model_with(limit=None, compile_s=None, grammars=None, workers=0):
    """Return the class `Sim` of the model with adapters and grammars.

    limit : max_loras_per_batch; None: no LoRA. compile_s : seconds of each grammar. grammars : request id -> grammar.
    workers : threads that compile; 0: no limit.
    """
    return type("WithExtras", (_Extras, reference._model(reference.SGLANG_MODEL, CHANGES).Sim), {
        "limit": limit, "compile_s": compile_s or (), "grammars": grammars or {}, "workers": workers})


class _Extras:
    def __init__(self, scene):
        super().__init__(scene)
        self.held_back, self.known, self.free_at, self.most_held = [], set(), [0.0] * self.workers, 0

    # ---- adapters

    def keyed(self, request, tokens):
        """Return a prompt that shares no first page with those of other adapters."""
        return [tokens[0] + ADAPTER * (request.get("lora") or 0), *tokens[1:]]

    def has_place(self, pass_, request):
        if self.limit is None:
            return True
        present = {each.spec.get("lora") for each in self.lasting} | {each.spec.get("lora") for each in pass_.run}
        return len(present | {request.spec.get("lora")}) <= self.limit

    # ---- grammars

    def receive(self, request):
        grammar = self.grammars.get(request.rid)
        if grammar is None or grammar in self.known:
            return self.enqueue(request)
        begin = self.t
        if self.workers:
            worker = min(range(self.workers), key=self.free_at.__getitem__)
            begin = max(begin, self.free_at[worker])
            self.free_at[worker] = begin + self.compile_s[grammar]
        self.held_back.append((begin + self.compile_s[grammar], request))
        self.most_held = max(self.most_held, len(self.held_back))

    def collect(self):
        self.lasting = list(self.running.reqs)          # those put back in this pass count to its end
        ready = [request for at, request in self.held_back if at <= self.t + 1e-10]
        self.held_back = [pair for pair in self.held_back if pair[0] > self.t + 1e-10]
        for request in ready:
            self.known.add(self.grammars[request.rid])
            self.enqueue(request)

    def idle(self):
        if not self.held_back:
            super().idle()
        elif self.waiting and self.spins < 20:
            self.spins += 1
        else:
            nexts = [at for at, _ in self.held_back] + [each.get("arrival", 0.0) for each in self.pend[:1]]
            self.t, self.spins = max(self.t, min(nexts)), 0
