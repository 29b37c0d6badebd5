"""Parts that an experiment uses: those of which a key is given, in it or in one of its pools."""
import copy
import pickle

import pytest

from simulator.config.load import changed

FAILS = 'failures=[{kind = "stop", at_s = 1.0}]'
POOL = 'pools=[{name = "a", engine = {lora = {max_loras = 2}}}]'


def names(experiment):
    return [type(part).__name__ for part in experiment.parts()]


@pytest.mark.parametrize("given", [(FAILS,), (POOL,), (FAILS, POOL)])
def test_a_key_in_the_experiment_or_in_a_pool_gives_its_part(load, given):
    alone = [name for one in given for name in names(load(one)) if name not in names(load())]
    assert alone and set(alone) <= set(names(load(*given)))


def test_parts_are_those_of_the_fields_after_a_change_or_a_copy(load):
    experiment = load(FAILS)
    of_failures = set(names(experiment)) - set(names(load()))

    assert not of_failures & set(names(changed(experiment, failures=())))
    assert changed(experiment, failures=()).origins is experiment.origins
    for other in (copy.copy(experiment), pickle.loads(pickle.dumps(experiment)), changed(experiment, seed=3)):
        assert names(other) == names(experiment)
