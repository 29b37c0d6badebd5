"""Times of grammars and their masks, and grammars that do not compile, drawn once for all replicas."""
import numpy as np

from simulator.core.random_streams import RandomStreams

NUM_DRAWS = 2**16           # number of mask times drawn
MASK_SEED = 20


def failing(given, names, seed: int) -> np.ndarray:
    """Return whether each grammar does not compile, int8 (names,).

    given : GrammarKeys. names : names of the grammars.
    """
    fails = RandomStreams(seed).generator("failing grammars").random(len(names)) < given.failing_fraction
    fails |= np.isin(np.array(names, object), given.failing)
    return fails.astype(np.int8)


def compile_ns(given, count: int, seed: int) -> np.ndarray:
    """Return the time to compile each grammar, int64 (count,).

    given : GrammarKeys.
    """
    compile_ms = given.compile_time.draw(RandomStreams(seed).generator("grammars"), count)
    return np.rint(1e6 * compile_ms).astype(np.int64)


def mask_times(given) -> np.ndarray:
    """Return times to fill masks, in microseconds.

    They do not depend on the seed of the run. The requests of a batch determine its share of the times.

    given : GrammarKeys.
    """
    return given.mask_time.draw(np.random.default_rng(MASK_SEED), NUM_DRAWS)
