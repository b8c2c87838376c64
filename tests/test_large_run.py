"""A whole run of 20,000 requests: the totals of vLLM's own scheduler, exactly."""

from experiments.benchmarks.recorded import RECORDED, replay, totals
from experiments.benchmarks.traffic import lognormal


def test_lognormal_totals_are_the_recorded_ones():
    trace = lognormal()
    assert (int(trace.prompt_tokens.sum()), int(trace.output_tokens.sum())) == (20_125_850, 3_996_305)
    run = replay(trace, RECORDED["lognormal"])
    assert totals(run) == RECORDED["lognormal"].totals
    assert sum(run.log.residence_us.tolist()) == run.ledger.total.sequence_us
