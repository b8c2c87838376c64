"""A whole run of 20,000 requests: the totals of vLLM's own scheduler, exactly."""

from experiments.benchmark import RECORDED, lognormal_trace, replay, totals


def test_lognormal_totals_are_the_recorded_ones():
    trace = lognormal_trace()
    assert (int(trace.prompt_tokens.sum()), int(trace.output_tokens.sum())) == (20_125_850, 3_996_305)
    run = replay(trace)
    assert totals(run) == RECORDED
    assert sum(run.log.residence_us.tolist()) == run.ledger.total.sequence_us
