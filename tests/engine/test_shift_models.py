"""Models by arrangement: shared, let go of, and what they counted is not lost."""
from simulator.engine.operations import shift_plan
from simulator.engine.operations.shift_plan import Models, ShiftPlan


class Model:
    """A latency model as far as it is asked here."""

    def __init__(self, arrangement):
        self.arrangement = arrangement

    def provenance(self):
        return {"exact": 10 + self.arrangement, "tables": {}, "experts": {"imbalance_at_start": 1.0 + self.arrangement}}

    def warnings(self):
        return ["told by all", f"told by {self.arrangement}"]


class Timeline:
    def arrangement(self, step):
        return step


def models(made):
    def make(arrangement):
        made.append(arrangement)
        return Model(arrangement)

    return Models(ShiftPlan(Timeline(), make, lambda number: 0, True), Model(0))


def test_replicas_share_the_model_of_an_arrangement():
    made = []
    kept = models(made)

    assert kept.of(1) is kept.of(1)
    assert kept.of(0).arrangement == 0
    assert made == [1]
    assert kept.imbalances == {0: 1.0, 1: 2.0}


def test_counts_of_all_models_add_up_and_sentences_are_told_once():
    kept, provenance, diagnosis = models([]), {"exact": 10, "tables": {}}, ["told by all", "told by 0"]
    kept.of(1), kept.of(2)

    kept.add_to(provenance, diagnosis)
    assert provenance == {"exact": 10 + 11 + 12, "tables": {}}
    assert diagnosis == ["told by all", "told by 0", "told by 1", "told by 2"]


def test_models_that_nobody_has_are_let_go_of_but_not_what_they_counted(monkeypatch):
    monkeypatch.setattr(shift_plan, "MOST_MODELS", 2)
    made, provenance, diagnosis = [], {"exact": 10}, []
    kept = models(made)
    for arrangement in (1, 2, 3, 4):
        kept.of(arrangement)
        kept.change(arrangement - 1, arrangement)

    kept.add_to(provenance, diagnosis)
    assert made == [1, 2, 3, 4]                 # once each
    assert provenance["exact"] == 10 + 11 + 12 + 13 + 14
    assert diagnosis == ["told by all", *(f"told by {i}" for i in (1, 2, 3, 4))]
