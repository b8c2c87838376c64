"""`pagedsim plan`: does it fit, how many at once, what would it take; and the lines a server would print."""

from __future__ import annotations

import argparse
from typing import Any

from experiments import options as opt
from experiments.check_report import report_failures
from experiments.deployment import deployment, model_and_gpu
from experiments.figures import check_format
from experiments.html.page import write_page
from experiments.output import check_outputs, deliver
from experiments.planning.cost import add_cost, cost_json
from experiments.planning.document import document
from experiments.planning.figure import plot_budget
from experiments.planning.page import plan_page
from experiments.planning.report import print_plan
from experiments.planning.serve_line import read_serve_line
from sim.models.mixers import Attention
from sim.models.model import ModelShape
from sim.sizing.hardware import GIB
from sim.sizing.plan import plan
from workloads.request import InputError

EXAMPLES = """examples:
  pagedsim plan --model Llama-3.1-8B-Instruct --gpu H100 --max-model-len 8192
  pagedsim plan --model Qwen3.5-27B --gpu L40S -tp 2 --kv-cache-dtype fp8 --plot memory.png
  pagedsim plan --model DeepSeek-R1 --available-kv-gib 21.43 -tp 8 --max-model-len 128000 --vllm-version 0.7.3
  pagedsim plan --gpu H100 -- vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 4 --max-model-len 32768
  pagedsim plan --model Llama-3.1-8B --gpu L4 --prompt-tokens 2000 --output-tokens 500 --requests-per-day 1000 \\
      --price-input 0.15 --price-output 0.60 --gpu-hour 0.80 --throughput 1500
"""
SWAP_BYTES = 4 * GIB                                   # --swap-space of the first engine
BARE = ModelShape("no model", "none", 1, 1, 1, 1, 1, ((Attention(1, 1),),), ("none",))


def main(argv: list[str]) -> int:
    """Entry of the command; returns the exit status."""
    own, pasted = (argv[:argv.index("--")], argv[argv.index("--") + 1:]) if "--" in argv else (argv, None)
    notes: list[str] = []
    options = parser().parse_args((_pasted(pasted, own, notes) if pasted is not None else []) + own)
    if options.plot is not None:
        check_format(options.plot)
    check_outputs({"--plot": options.plot, "--html": options.html, "--json": options.json})
    made = plan_json(options, notes)
    if options.plot is not None:
        plot_budget(made, options.plot)
    if options.html is not None:
        write_page(options.html, plan_page(made, argv))
    deliver(made, options.json, options.quiet, lambda: print_plan(made), [*made["warnings"], *made["notes"]])
    return report_failures("plan", made["crosscheck"])


def parser() -> argparse.ArgumentParser:
    """All options of the command."""
    made = opt.OneLineParser("pagedsim plan", description=__doc__, epilog=EXAMPLES, allow_abbrev=False,
                             usage="pagedsim plan [options] [-- vllm serve MODEL ...]",
                             formatter_class=argparse.RawDescriptionHelpFormatter)
    for add in (opt.add_sizing, opt.add_deployment, opt.add_measured, add_cost):
        add(made)
    group = made.add_argument_group("output")
    group.add_argument("--json", metavar="FILE", help="the plan as JSON; - for standard output")
    group.add_argument("--plot", metavar="FILE", help="a picture of a GPU's memory: .png, .svg or .pdf")
    group.add_argument("--html", metavar="FILE", help="a page with all of it, for any browser, without a network")
    opt.add_quiet(group)
    return made


def plan_json(options: argparse.Namespace, notes: list[str]) -> dict[str, Any]:
    """The whole plan as one object."""
    model, gpu = model_and_gpu(options, notes)
    if model is None and options.max_model_len is None:
        raise InputError("--num-gpu-blocks-override without a --model: --max-model-len is wanted")
    asked = deployment(options, model or BARE, gpu)
    if options.vllm_version is None:
        notes.append(f"the report follows vLLM {asked.version}, the newest whose rules are known: --vllm-version for another")
    if asked.shards.data > 1:
        notes.append(f"each of the {asked.shards.data} replicas prints these lines for itself")
    worked = plan(asked)
    if asked.version.first_engine and model is not None:
        notes.append(f"vLLM {asked.version} prints: # GPU blocks: {worked.report.num_blocks}, # CPU blocks: "
                     f"{SWAP_BYTES // worked.kv_bytes_per_block} (swap space of 4 GiB a GPU)")
    made = document(worked, notes, named=model is not None)
    made["cost"] = cost_json(options, worked)
    return made


def _pasted(words: list[str], own: list[str], notes: list[str]) -> list[str]:
    """Options of a pasted server command; what it says and we do not use is named."""
    line = read_serve_line(words)
    if line.ignored:
        notes.append(f"no part of the plan: {', '.join(line.ignored)}")
    notes += [f"{name} is not modelled: it changes {what}" for name, what in line.unmodelled.items()]
    version = [f"--vllm-version={line.version_hint}"] if line.version_hint else []
    given = {word.split("=")[0] for word in own if word.startswith("--")}
    replaced = [word for word in line.arguments if word.split("=")[0] in given]
    if replaced:
        notes.append(f"given before -- and so not taken from the command: {', '.join(replaced)}")
    return [*version, *line.arguments]
