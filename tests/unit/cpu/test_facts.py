"""What `pageloom info` says of the CPU."""

from __future__ import annotations

from dataclasses import replace

from pageloom.backends.cpu.facts import CpuFacts, cpu_facts
from pageloom.backends.cpu.options import usable_cores
from pageloom.commands.info import cpu_finding

FACTS = CpuFacts("Some CPU", 4, ("scalar", "avx2"), {"avx512": "the CPU does not have AVX-512F"}, 1, 2, 3, None)


def test_the_levels_are_told_with_the_reasons_against_higher_ones() -> None:
    finding = cpu_finding(FACTS)
    assert finding.available
    assert finding.summary == "avx2 on Some CPU, 4 cores; also scalar"
    assert finding.notes == ("not avx512: the CPU does not have AVX-512F",)
    assert finding.limits == {"bytes of L1 data cache": 1, "bytes of L2 cache": 2, "bytes of L3 cache": 3}


def test_without_kernels_it_is_told_what_to_do_and_what_answers_meanwhile() -> None:
    finding = cpu_finding(replace(FACTS, levels=(), unavailable={}, why_no_kernels="nothing compiled: pip install"))
    assert not finding.available
    assert finding.notes == ("nothing compiled: pip install; until then the numpy reference answers, slowly",)


def test_the_facts_of_this_machine_are_found() -> None:
    facts = cpu_facts()
    assert facts.cores == usable_cores() >= 1
    assert facts.name
    assert (facts.why_no_kernels is None) == bool(facts.levels)
    assert facts.describe().startswith(facts.name)
