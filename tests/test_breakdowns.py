"""Start-up logs that print every term of the budget: the terms add up, and with nothing measured the rest is predicted."""

import json
from pathlib import Path

import pytest

from sim.models.model_config import load_model
from sim.sizing.budget import Measured
from sim.sizing.deployment import Deployment
from sim.sizing.hardware import GIB, Gpu, find_gpu
from sim.sizing.plan import plan
from sim.sizing.versions import NEWEST, parse_version
from sim.sizing.weights import Shards

ROWS = {row["id"]: row for row in map(json.loads, (Path(__file__).parent / "data" / "server_startup_logs.jsonl").open())}
TERMS = ("weights_gib", "activation_peak_gib", "non_torch_gib", "total_gpu_gib")
FULL = [i for i, row in ROWS.items() if all(term in row for term in TERMS) and "available_kv_gib" in row]
WHOLE_CARD = {"v139", "v140"}
"""Both print 23.55 GiB but took their share of the whole 24: v140 says so, 24 x 0.17 = 4.08 where 23.55 x 0.17 is 4.00."""


def measured(row, total):
    return Measured(total, row["weights_gib"], row["activation_peak_gib"], row["non_torch_gib"], 0.0)


def test_there_are_sixteen():
    assert len(FULL) == 16


@pytest.mark.parametrize("id_", FULL)
def test_the_budget_less_its_measured_parts_is_what_was_available(id_):
    row = ROWS[id_]
    total = 24.0 if id_ in WHOLE_CARD else row["total_gpu_gib"]
    card = Gpu("card", round(total * GIB), total)
    shards = Shards(pipeline=1)
    made = plan(Deployment(load_model("Llama-3.1-8B"), card, gpu_memory_utilization=row["gpu_memory_utilization"], shards=shards,
                           max_model_len=2048, measured=measured(row, total)))
    assert made.budget is not None
    assert made.budget.available_bytes / GIB == pytest.approx(row["available_kv_gib"], abs=0.02)


def test_the_two_rows_of_24_gib_do_not_add_up_with_the_total_they_print():
    for id_ in WHOLE_CARD:
        row = ROWS[id_]
        left = row["total_gpu_gib"] * row["gpu_memory_utilization"] - sum(row[term] for term in TERMS[:3])
        assert abs(left - row["available_kv_gib"]) > 0.08


PREDICTED = {  # rows on an H100 or A100 that state model and utilisation -> model, version, further settings
    "v028": ("Phi-4-mini", "A100-40GB", "0.7.1", {}),
    "v155": ("Llama-3.3-70B-Instruct-FP8-dynamic", "H100", "0.15", {"shards": Shards(2)}),
    "v157": ("Llama-3.1-8B-Instruct", "H100", "0.15", {}),
    "v158": ("Qwen3-0.6B", "H100", "0.15", {}),
    "v092": ("Qwen3-0.6B", "H100", "0.15", {"max_num_seqs": 256}),
}
UNPREDICTED = {
    "v011": "0.04 GiB were left of 37.4: ten per cent of it is 4 MiB, and a 72B's weights are not known to 4 MiB",
    "v134": "prints blocks and no memory; the engine of 0.2.7 had other activations",
}
"""v092 leaves 0.5 GiB for activations where v158, the same model on the same card, takes 5.56: no rule of model and card
gives both. The sampler's 1,024 rows make v158's; with 256, the older default, v092 is met."""


def predicted(id_):
    name, gpu, version, settings = PREDICTED[id_]
    row = ROWS[id_]
    return plan(Deployment(load_model(name), find_gpu(gpu), gpu_memory_utilization=row["gpu_memory_utilization"],
                           max_model_len=row.get("max_model_len"), version=parse_version(version), **settings))


@pytest.mark.parametrize("id_", PREDICTED)
def test_available_memory_is_predicted_within_ten_per_cent(id_):
    made, printed = predicted(id_), ROWS[id_]["available_kv_gib"]
    error = made.available_bytes / GIB / printed - 1
    print(f"{id_}: {made.available_bytes / GIB:.2f} GiB predicted, {printed} printed: {100 * error:+.1f} %")
    assert abs(error) <= 0.10


@pytest.mark.parametrize("id_", ["v028", "v155", "v157", "v158"])
def test_it_is_within_ten_per_cent_by_the_newest_rules_too(id_):
    name, gpu, _, settings = PREDICTED[id_]
    row = ROWS[id_]
    made = plan(Deployment(load_model(name), find_gpu(gpu), gpu_memory_utilization=row["gpu_memory_utilization"],
                           max_model_len=row["max_model_len"], version=NEWEST, **settings))
    assert made.available_bytes / GIB == pytest.approx(row["available_kv_gib"], rel=0.10)


def test_all_rows_of_these_cards_are_predicted_or_listed():
    cards = {i for i, row in ROWS.items() if str(row.get("gpu", "")).startswith(("H100", "A100")) and row["model_seen"]
             and "gpu_memory_utilization" in row}
    assert cards == set(PREDICTED) | set(UNPREDICTED)


@pytest.mark.parametrize(("id_", "length"), [("v001", 20_000), ("v002", 29_000)])
def test_a_prompt_in_one_step_takes_activations_in_proportion(id_, length):
    """The first engine did not chunk prompts up to 32k tokens: 3.81 GiB were left at 20,000 tokens, 2.89 at 29,000."""
    row = ROWS[id_]
    made = plan(Deployment(load_model("Llama-3.1-8B-Instruct"), find_gpu("RTX 3090"), gpu_memory_utilization=0.9,
                           max_model_len=length, version=parse_version("0.6.3")))
    assert made.budget is not None
    assert made.budget.activation.gib == pytest.approx({20_000: 2.07, 29_000: 2.99}[length], abs=0.02)
    assert made.available_bytes / GIB == pytest.approx(row["available_kv_gib"], rel=0.10)
