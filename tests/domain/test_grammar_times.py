"""Times to compile grammars follow the measured tables between sizes and vocabularies, and grow beyond them."""
import math

import pytest

from simulator.domain.grammar_times import (
    COSTS,
    MOST_CHARACTERS,
    VOCABULARIES,
    Grammar,
    beyond,
    compile_time,
    cpu_ms,
    workers,
)


@pytest.mark.parametrize("compiler", COSTS)
@pytest.mark.parametrize("kind", COSTS["xgrammar"])
def test_measured_grammars_take_the_measured_time(compiler, kind):
    cost = COSTS[compiler][kind]
    for place, vocabulary in enumerate(VOCABULARIES):
        row = cost.ms[min(place, len(cost.ms) - 1)]
        assert [cpu_ms(Grammar(kind, size, vocabulary=vocabulary), compiler) for size in cost.sizes] == pytest.approx(
            list(row))
        assert list(row) == sorted(row)


def test_between_them_lines_in_logarithms_of_size_and_straight_ones_of_vocabulary():
    half = Grammar("ebnf", 8, vocabulary=(32_768 + 131_072) // 2)       # 8: the middle of 4 and 16 in logarithms

    assert cpu_ms(half, "xgrammar") == pytest.approx((math.sqrt(24.9 * 106) + math.sqrt(91.9 * 329)) / 2, rel=1e-3)


def test_beyond_them_time_grows_in_proportion_and_the_text_says_so():
    assert cpu_ms(Grammar("ebnf", 160), "xgrammar") == pytest.approx(3290.0)
    assert cpu_ms(Grammar("ebnf", 16, vocabulary=16_384), "xgrammar") == pytest.approx(53.0)
    assert beyond(Grammar("ebnf", 160)) == "size = 160, measured 4 to 16"
    assert beyond(Grammar("ebnf", 16, vocabulary=16_384)) == "a vocabulary of 16,384, measured 32,768 to 229,712"
    assert beyond(Grammar("ebnf", 16)) is None


def test_a_string_with_a_new_length_costs_by_the_character_up_to_the_longest_token():
    plain, short, long, longer = (
        cpu_ms(Grammar("json_schema", 16, new_lengths=count, max_length=characters), "xgrammar")
        for count, characters in ((0, 64), (1, 10), (1, MOST_CHARACTERS), (1, 4_000)))

    assert short - plain == pytest.approx(220.0) and longer == long == pytest.approx(plain + 170 * 22.0)
    assert cpu_ms(Grammar("json_schema", 16, new_lengths=3), "guidance") == cpu_ms(Grammar("json_schema"), "guidance")


@pytest.mark.parametrize(("cpus", "num_workers", "share"), [(0, 0, 1), (1, 1, 1), (2, 1, 2), (3, 2, 1.5), (16, 8, 2)])
def test_workers_of_xgrammar_share_all_cpus(cpus, num_workers, share):
    alone = compile_time(Grammar("ebnf"), "xgrammar", 0, 0).median

    assert workers(cpus) == num_workers
    assert compile_time(Grammar("ebnf"), "xgrammar", cpus, num_workers).median == pytest.approx(alone / share)
    assert compile_time(Grammar("ebnf"), "guidance", cpus, num_workers) == compile_time(
        Grammar("ebnf"), "guidance", 0, 0)
