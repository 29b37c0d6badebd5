"""The best mix of pools of an experiment: the capacity of one replica of each, then mixes at the load."""
import math
from collections.abc import Callable
from typing import Any

from simulator.study.capacity.bounds import Bounds
from simulator.study.capacity.estimate import estimated_rate
from simulator.study.capacity.mix import Chosen, Kind, Mix, choose, text_of
from simulator.study.capacity.point_search import answer, rules_of, start_of
from simulator.study.capacity.prober import Prober
from simulator.study.capacity.varied import Varied
from simulator.study.capacity.verdict import THIN, Verdict, judge
from simulator.study.sweep.bench import num_gpus
from simulator.study.sweep.laboratory import Laboratory
from simulator.study.sweep.study_file import Study


def mixed(study: Study, bounds: Bounds, varied: Varied, laboratory: Laboratory,
          tell: Callable[..., Any]) -> tuple[Chosen, list[Kind]]:
    """Return the best mix for the load of the experiment, and the kinds of it."""
    names = [pool.name for pool in study.base.pools]
    rows = [(f"pools.{names.index(row.pool)}.replicas", row) for row in study.settings.mix]

    def replicas(counts) -> dict[str, int]:
        return {key: count for (key, _), count in zip(rows, counts, strict=True)}

    kinds = []
    for number, (_, row) in enumerate(rows):
        alone = replicas([int(i == number) for i in range(len(rows))])
        kinds.append(_kind(study, bounds, varied, laboratory, (row, alone), tell))

    def judged(mix: Mix) -> Verdict:
        counts = replicas(mix.counts)
        single = study._replace(base=study.experiment_of(counts))
        prober = Prober(laboratory, single, varied, bounds, point=counts)
        verdict = judge(varied.now, prober, rules_of(study, bounds))
        tell(verdict, f"{text_of(mix, kinds)}: {varied.key}")
        return verdict

    return choose(kinds, varied.now, judged, study.settings.mix_factor, study.settings.mix_order), kinds


def _kind(study: Study, bounds: Bounds, varied: Varied, laboratory: Laboratory, asked: tuple,
          tell: Callable[..., Any]) -> Kind:
    """Search the capacity of one replica of a pool alone."""
    row, alone = asked
    single = study._replace(base=study.experiment_of(alone))
    pool = next(each for each in single.base.all_pools() if each.name == row.pool)
    prober = Prober(laboratory, single, varied, bounds, point=alone)
    start = start_of(single, varied, lambda: estimated_rate(single.base))
    what = f"1 x {row.pool}: {varied.key}"
    found = answer(prober, single, varied, bounds, start, lambda verdict: tell(verdict, what))
    capacity_per_s = math.inf if found.word == THIN else found.value or 0.0
    return Kind(row.pool, getattr(row.replicas, "from"), row.replicas.to, capacity_per_s, pool.cost_per_hour,
                num_gpus(single.base))
