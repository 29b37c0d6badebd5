"""`simulator.testing`: every built-in class keeps its contract, and a class that breaks a rule is found."""
import sys
import textwrap

import pytest

from simulator import registry, testing

DENSE = {"model": {"name": "llama-3.1-8b"}, "hardware": {"name": "h100-sxm-80gb"}}
KNOWN = {"output_knowledge": {"predictor": "exact"}}
KEYS = {                        # (kind, name) -> what it must have beside its name: its own keys, other tables
    ("admission", "tenant_budgets"): ({"budgets": [{"tenant": "a", "share": 0.5}]}, {}),
    ("autoscaler", "slo_attainment"): ({"ttft_ms": 500.0}, {}),
    ("autoscaler", "queueing"): ({"alpha": 6.0, "beta": 0.02, "gamma": 0.0001}, {}),
    ("autoscaler", "mix"): ({"input_tokens": [500], "output_tokens": [100], "profiles": [
        {"pool": "default", "requests_per_s": [[2.0]]}]}, {}),
    ("scheduler", "lightllm"): ({"num_gpu_blocks": 960}, {"workload": KNOWN}),     # blocks of one token
    ("scheduler", "sjf_aging"): ({}, {"workload": KNOWN}),
    ("scheduler", "split_wise"): None,          # it needs pools of two roles
    ("router", "split_wise"): None,
    ("autoscaler", "planner"): None,            # it has pools of two roles, tests/scaling/test_all_autoscalers.py
    ("latency", "aicb"): None,                  # they need tables, tests/latency/test_every_backend.py
    ("latency", "forest"): None,
    ("latency", "operators"): None,
    ("latency", "blackbox"): ({"beta": [5000.0, 20.0, 15.0]}, {}),
} | {("latency", name): ({}, DENSE) for name in ("crossmodel", "roofline", "step_roofline", "trained_physics")}
CHECKS = {"router": testing.check_router, "scorer": testing.check_scorer, "scheduler": testing.check_scheduler,
          "latency": testing.check_latency_model, "admission": testing.check_admission,
          "autoscaler": testing.check_autoscaler}
CASES = [(kind, name) for kind in CHECKS for name in sorted(registry.KINDS[kind].entries)
         if KEYS.get((kind, name), ()) is not None]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_every_built_in_class_keeps_its_contract(kind, name):
    keys, sections = KEYS.get((kind, name), ({}, {}))

    CHECKS[kind](name, keys, **sections)


BROKEN = {
    ("router", "it sends to closed replicas"): ("closed replica", '''
        from simulator.routing.python_router import PythonRouter


        class Broken(PythonRouter):
            def choose(self, request, now_ns):
                return 0
        '''),
    ("router", "it has a state of its own that equal seeds do not share"): ("equal seeds", '''
        from simulator.routing.python_router import PythonRouter

        COUNT = [0]


        class Broken(PythonRouter):
            def choose(self, request, now_ns):
                COUNT[0] += 1
                open = self.accounts["is_routable"].nonzero()[0]
                return int(open[COUNT[0] * COUNT[0] // 3 % len(open)]) if len(open) else None
        '''),
    ("scorer", "its scores are no fractions"): ("from 0 to 1", '''
        from simulator.routing.scoring.python import PythonScorer


        class Broken(PythonScorer):
            def rate_all(self, request, now_ns):
                return 1.0 + self.states["waiting"]
        '''),
    ("scheduler", "it starves a request"): ("completes", '''
        from simulator.scheduling.python_scheduler import PythonScheduler


        class Broken(PythonScheduler):
            def form_batch(self, batch, now_ns):
                for request in batch.running:
                    if batch.budget:
                        batch.run(request)
                if len(batch.waiting) > 1:
                    batch.admit(batch.waiting[0])
        '''),
    ("latency", "a longer batch is faster"): ("faster", '''
        from simulator.latency.python_model import PythonLatencyModel


        class Broken(PythonLatencyModel):
            def batch_us(self, shape):
                return 9000.0 if shape.num_decodes <= 4 else 4000.0
        '''),
    ("latency", "equal batches differ"): ("equal times", '''
        from simulator.latency.python_model import PythonLatencyModel

        COUNT = [0]


        class Broken(PythonLatencyModel):
            def batch_us(self, shape):
                COUNT[0] += 1
                return 1000.0 + COUNT[0]
        '''),
    ("admission", "it decides by a count that runs share"): ("equal results", '''
        from simulator.admission.python_admission import PythonAdmission

        COUNT = [0]


        class Broken(PythonAdmission):
            def lets_pass(self, request, now_ns):
                COUNT[0] += 1
                return COUNT[0] % 7 != 0
        '''),
    ("autoscaler", "it decides by a count that runs share"): ("equal results", '''
        from simulator.scaling.base import Autoscaler

        COUNT = [0]


        class Broken(Autoscaler):
            def decide(self, observed):
                COUNT[0] += 1
                return {0: COUNT[0] % 3}
        '''),
}


@pytest.mark.parametrize(("kind", "fault"), BROKEN)
def test_a_class_that_breaks_a_rule_is_found(kind, fault, tmp_path, monkeypatch):
    rule, text = BROKEN[kind, fault]
    module = f"broken_{abs(hash((kind, fault)))}"
    (tmp_path / f"{module}.py").write_text(textwrap.dedent(text))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    with pytest.raises(AssertionError) as found:
        CHECKS[kind](f"{module}:Broken")

    assert f"{module}:Broken breaks" in str(found.value)
    assert rule in str(found.value)
