"""A part is named in its own files alone: in config, workload, results and engine nowhere else."""
import re

import pytest

from simulator import registry
from style.sources import CODE, files, name

ROOMS = ("config", "workload", "results", "engine")
FACES = {"simulator/results/result.py"}                 # names that users have of tables
# Feature: words that name it, and its own files in these rooms: operation, results.
FEATURES = {
    "samples": (r"replica_samples|Sampler|records\.SAMPLE", {"engine/operations/sampler.pyx"}),
    "decisions": (r"DecisionTotals|DecisionTracer|records\.(DECISION|CANDIDATE)|output\.decisions|wants_decisions",
                  {"results/decisions.py", "engine/gateway/tracer.pyx"}),
    "costs": (r"PowerMeter|PowerFacts|\bLedger|\bBill\b|(sections\[\"|experiment\.)(prices|power|carbon|electricity)\b",
              {"results/money.py", "results/energy.py", "results/power_meter.py"}),
    "failures": (r"(experiment|sections)\.failures|\"failures\"|\bFailure\b|Outages", {
        "engine/operations/outages.pyx", "engine/operations/outages.pxd", "engine/operations/upkeep.pyx",
        "engine/operations/lifecycle.pxd"}),
    "autoscaling": (r"\.autoscaling\b|\"autoscaling\"|\bAutoscaling\b|Upkeep", {
        "engine/operations/scaling.pyx", "engine/operations/scaling.pxd", "engine/operations/upkeep.pyx",
        "engine/operations/pace.py", "engine/operations/starts.py", "engine/operations/scrapes.py",
        "engine/operations/shared_budget.py"}),
    "rescheduling": (r"\.rescheduling\b|\"rescheduling\"|Rescheduling\b|MovePlan", {
        "engine/operations/migration.pyx", "engine/operations/move_plan.py", "engine/operations/movables.pyx",
        "engine/operations/mover.pxd", "engine/operations/mover.pyx",
        "engine/operations/outages.pyx", "engine/operations/scaling.pyx"}),     # the last two may need it
    "programs": (r"ProgramGate|ProgramDoor|ProgramPolicy|cluster\.programs\b|program_(wait|held)_ns", {
        "results/programs.py", *(f"engine/programs/{file}" for file in ("door.pyx", "gate.py", "operation.py"))}),
    "gateways": (r"GatewayWorkers|gateway_workers|cluster\.gateways\b|GatewaysParameters",
                 {"results/gateways.py", "engine/operations/gateway_workers.pyx"}),
    "encode": (r"EncodePlan|encode_(jobs|plan|events)|\bEncoding\b|Encoders\b|\"embeddings\"(?!:)|cluster\.encode",
               {"results/encoding.py", *(f"engine/encoders/{file}" for file in (
                   "__init__.py", "build.py", "group.pyx", "jobs.py", "operation.pxd", "operation.pyx", "plan.py",
                   "stage.pyx"))}),
    "expert_shifts": (r"ExpertShifts|ShiftPlan|engine\.experts", {
        "engine/operations/expert_shifts.pyx", "engine/operations/shift_plan.py"}),
    "ranks": (r"\bDataParallel\b|engine\.data_parallel\b(?!\])|LOCK_STEP|\branks_of\(|\bLockStep\b|\bRankFront\b", {
        "engine/ranks.py", "engine/replica/lock_step.pyx", "engine/replica/lock_step_group.pyx"}),
    "kv_tiers": (r"kv_tiers|KvTiers|KV_TIER", set()),
    "disaggregation": (r"kv_transfer\b(?!\])|KvTransfer|\bhand_over|HandOver|[Dd]isaggregation\b|pd_node_ratio", {
        "results/hand_over.py", *(f"engine/hand_over/{file}" for file in (
            "build.py", "journeys.py", "leases.pxd", "leases.pyx", "operation.pxd", "operation.pyx",
            "pairing.pyx", "plan.py", "promises.pxd", "settings.py", "tier.pxd", "tier.pyx", "transport.pxd",
            "transport.pyx", "wire.pxd", "wire.pyx"))}),
    "adapters": (r"\bLORA\b|engine\.lora|with_adapters|[.\"]adapters\b|adapters__|\bAdapters\b",
                 {"workload/adapters.py"}),
    "speculation": (r"[Ss]peculati(on|ve)|DRAFT_MODEL|has\.DRAFTS|DraftCounts|GrammarDrafts", {
        "results/speculation.py", "engine/accepting.py",
        "engine/replica/rank.pyx", "engine/replica/rank.pxd"}),     # a rank applies the outcome of each verify step
}


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_is_named_in_its_own_files_alone(feature):
    words, own = FEATURES[feature]
    own = {f"simulator/{file}" for file in own} | FACES
    wrong = [f"{name(path, number)}: {line.strip()}" for path in files(*CODE, under="simulator")
             if path.parts[path.parts.index("simulator") + 1] in ROOMS and name(path) not in own
             for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if re.search(words, line)]
    assert not wrong, "\n".join(wrong)


def test_every_key_of_a_part_is_declared_by_it():
    own = {key: entry for key, entry in registry.PARTS.items() if not entry.is_others}
    for key, entry in own.items():
        assert key in registry.part(key).keys, f"{key}: {entry.target} has no such key"
    declared = {key for part in registry.parts() for key in part.keys}
    assert declared == set(own)
