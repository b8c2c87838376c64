"""Recipes: the examples of docs/synthetic.md run, the tables there name every key, and what is wrong is said on one line."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tomllib
from inspect import Parameter
from pathlib import Path

import numpy as np
import pytest

from workloads.profiles import profile, profile_names
from workloads.request import ContentIds, InputError, Trace
from workloads.synth import parse_spec, read_recipe, recipe, with_arrivals, with_output, with_prefix
from workloads.synth.arrivals import ARRIVALS
from workloads.synth.draws import Fixed
from workloads.synth.keys import keys_of
from workloads.synth.lengths import LENGTHS
from workloads.synth.recipe import recipe_of_text
from workloads.synth.sharing import KINDS, every_kind
from workloads.synth.times import SECONDS

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "synthetic.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SMALL = {"requests": 50, "arrivals": {"kind": "poisson", "rate": 2.0}, "prompt": "profile:name=sharegpt", "output": 20}
COLUMNS = ("prompt_tokens", "output_tokens", "arrival_us", "session", "think_us")


def rng(seed=0):
    return np.random.default_rng(seed)


def same(one, two):
    return not one.differences(two) and one.source == two.source


# The page

@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_run(text, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    table = tomllib.loads(text)
    trace = read_recipe(path)
    assert len(trace) == table["requests"] and trace.source.startswith(f"synthetic: {table['requests']:,} requests, arrivals ")
    assert trace.made_by is None and trace.arrival_us[0] == 0
    assert trace.content is not None
    conversations = table["prefix"]["kind"] in ("chat", "agent")
    assert trace.content.cover_output == conversations == (trace.think_us is not None)
    assert same(trace, recipe(table))


def test_there_is_an_example_of_every_kind_of_prefix():
    assert {tomllib.loads(text)["prefix"]["kind"] for text in EXAMPLES} == set(KINDS)
    everything = "".join(EXAMPLES)
    assert all(f'"{kind}"' in everything or f'"{kind}:' in everything for kind in (set(ARRIVALS) - {"all-at-once"}) | set(LENGTHS)
               if kind not in ("constant",))


def default_of(value):
    if value is Parameter.empty:
        return ""
    if isinstance(value, Fixed):
        return f" = {value.value}"
    if value is None:
        return " = -"
    return f" = {value:g}" if isinstance(value, float) and value < 1e6 else f" = {value:.0f}" if isinstance(value, float) else (
        f" = {str(value).lower()}")


def tables():
    """The tables of the page: of each its rows, kind -> keys."""
    for block in re.findall(r"^\| kind \|.*\n\| -.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE):
        rows = [re.split(r" *\| *", line.strip("| \n"), maxsplit=2) for line in block.splitlines()]
        yield {row[0].strip("`"): re.findall(r"`(.*?)`", row[1]) for row in rows}


def test_the_page_names_every_kind_key_and_default():
    found = list(tables())
    assert len(found) == 4
    for shown, kinds in zip(found, (ARRIVALS, LENGTHS, SECONDS, KINDS), strict=True):
        assert list(shown) == list(kinds)
        for kind, function in kinds.items():
            assert shown[kind] == [name + default_of(default) for name, _, default in keys_of(function)], kind
    for name, _, default in keys_of(every_kind):
        assert f"`{name}{default_of(default)}`" in PAGE


def test_the_page_names_every_profile():
    for name in profile_names():
        about = profile(name).about
        assert f"| `{name}` | {about['requests']:,} | {about['means']['prompt']:,} | {about['means']['output']:,} |" in PAGE


# The same bytes, and independent parts

def test_same_table_same_bytes():
    table = tomllib.loads(EXAMPLES[-1])
    assert same(recipe(table), recipe(dict(reversed(table.items()))))
    assert recipe(table).differences(recipe({**table, "seed": 1}))


def test_same_bytes_in_another_process(tmp_path):
    (tmp_path / "r.toml").write_text(EXAMPLES[-1])
    code = ("import sys, hashlib; from workloads.synth import read_recipe; t = read_recipe(sys.argv[1]); "
            "print(hashlib.sha256(b''.join(c.tobytes() for c in (t.prompt_tokens, t.output_tokens, t.arrival_us, t.session, "
            "t.think_us, t.content.ids))).hexdigest())")
    said = {subprocess.run([sys.executable, "-c", code, str(tmp_path / "r.toml")], capture_output=True, text=True, check=True,
                           timeout=100, env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}).stdout
            for seed in ("1", "2")}
    assert len(said) == 1


def test_other_arrivals_leave_the_rest():
    one = recipe({**SMALL, "prefix": "system:prompts=9"})
    two = recipe({**SMALL, "arrivals": "all-at-once", "prefix": "system:prompts=9"})
    assert one.differences(two) == ["arrival_us"]
    three = recipe({**SMALL, "output": "uniform:least=1,most=9", "prefix": "system:prompts=9"})
    assert one.differences(three) == ["output_tokens"]
    assert recipe(SMALL).differences(recipe({**SMALL, "output": "profile:name=vtc-arena"})) == ["output_tokens"]
    drawn = {**SMALL, "output": "geometric:mean=90"}
    assert recipe(drawn).differences(recipe({**drawn, "prompt": 7})) == ["prompt_tokens"]
    four = recipe({**SMALL, "prefix": "system:prompts=9,salts=2"})
    assert one.differences(four) == ["content"]


def test_without_prefix():
    trace = recipe(SMALL)
    assert trace.content is None and trace.session is None and trace.think_us is None
    assert np.array_equal(trace.prompt_tokens, recipe({**SMALL, "prefix": "none"}).prompt_tokens)


def test_source_in_words():
    table = {**SMALL, "arrivals": {"kind": "gamma", "rate": 2.0, "burstiness": 0.5}, "seed": 7}
    assert recipe(table).source == ("synthetic: 50 requests, arrivals gamma (rate 2, burstiness 0.5), prompt "
                                    "profile:name=sharegpt, output 20, seed 7")


# The short form

@pytest.mark.parametrize(("text", "table"), [
    ("poisson:rate=2", {"kind": "poisson", "rate": 2}),
    ("system:tokens=512,prompts=20", {"kind": "system", "tokens": 512, "prompts": 20}),
    (" none ", {"kind": "none"}),
    ("gamma: rate = 2.5 , burstiness = 1e-1", {"kind": "gamma", "rate": 2.5, "burstiness": 0.1}),
    ("rag:in_order=true,document_tokens=(uniform:least=1,most=9)",
     {"kind": "rag", "in_order": True, "document_tokens": "uniform:least=1,most=9"}),
])
def test_parse_spec(text, table):
    assert parse_spec(text) == table


@pytest.mark.parametrize(("text", "message"), [
    ("", "'' has no kind; the form is kind:key=value,key=value"),
    (":a=1", "has no kind"),
    ("a:", "'' in 'a:' is not key=value"),
    ("a:b", "'b' in 'a:b' is not key=value"),
    ("a:b=1,,c=2", "'' in 'a:b=1,,c=2' is not key=value"),
    ("a:b=1,b=2", "the key 'b' comes twice"),
    ("a:b=(c:d=1", "the brackets of 'b=.c:d=1' do not match"),
    ("a:b=c)", "the brackets of 'b=c.' do not match"),
    ("a\n:b\n", "not key=value"),
    ("x" * 20_000, "20,000 characters are too many"),
])
def test_bad_specs(text, message):
    with pytest.raises(InputError, match=f"^--synth-prefix: .*{message}") as caught:
        parse_spec(text, "--synth-prefix")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


# What is wrong

BAD = [
    ({"requests": 0}, "requests: must be from 1 to 10,000,000, not 0"),
    ({"requests": 100_000_000}, "requests: must be from 1 to 10,000,000, not 100000000"),
    ({"requests": 2**100_000}, "requests: must be from 1 to 10,000,000, not a number of 100,001 bits"),
    ({"requests": 10.0}, "requests: 10.0 is not a whole number"),
    ({"requests": True}, "requests: True is not a whole number"),
    ({"requests": "many"}, "requests: 'many' is not a whole number"),
    ({"seed": -1}, "seed: must be from 0 to 18,446,744,073,709,551,615, not -1"),
    ({"seeds": 1}, "unknown key 'seeds'; the keys are arrivals, prompt, output, prefix, lengths, requests, seed"),
    ({"arrivals": 3}, "arrivals: must be a table, not 3"),
    ({"arrivals": {}}, "arrivals: needs a kind; the kinds are poisson, gamma, constant, on-off, diurnal, all-at-once, closed"),
    ({"arrivals": {"kind": 3}}, "arrivals: unknown kind 3; the kinds are poisson, gamma"),
    ({"arrivals": "bursty:rate=1"}, "arrivals: unknown kind 'bursty'; the kinds are poisson, gamma"),
    ({"arrivals": "poisson"}, "arrivals: needs the key 'rate'"),
    ({"arrivals": "poisson:rate=1,burst=2"}, "arrivals: unknown key 'burst'; the keys are rate"),
    ({"arrivals": {"kind": "poisson", "rate": float("nan")}}, "arrivals.rate: must be above 0.0 to 1,000,000,000.0, not nan"),
    ({"arrivals": {"kind": "poisson", "rate": float("inf")}}, "arrivals.rate: must be above 0.0 to 1,000,000,000.0, not inf"),
    ({"arrivals": {"kind": "poisson", "rate": 10**400}}, "arrivals.rate: must be above .*, not a number of 1,329 bits"),
    ({"arrivals": {"kind": "poisson", "rate": 0}}, "arrivals.rate: must be above 0.0"),
    ({"arrivals": {"kind": "poisson", "rate": 1e-300}}, "arrivals: the rate 1e-300 is so low that 50 arrivals do not fit"),
    ({"arrivals": {"kind": "poisson", "rate": "2"}}, "arrivals.rate: '2' is not a number"),
    ({"arrivals": {"kind": "diurnal", "rate": 1, "peak_to_mean": 3}}, "arrivals.peak_to_mean: must be from 1.0 to 2.0, not 3"),
    ({"arrivals": "closed:users=2,think_s=-1"}, "arrivals.think_s: must be from 0.0 to 10,000,000.0, not -1"),
    ({"arrivals": {"kind": "closed", "users": 10**7, "think_s": 1}}, "arrivals.users: must be from 1 to 1,000,000, not 10000000"),
    ({"arrivals": {"kind": "closed", "users": 1, "think_s": []}}, r"arrivals.think_s: must be a number or a table .*, not \[\]"),
    ({"lengths": 0.3}, "lengths: must be a table, not 0.3"),
    ({"lengths": {"correlation": 1.5}}, "lengths.correlation: must be from -1.0 to 1.0, not 1.5"),
    ({"lengths": {"correlation": 0.1, "rank": True}}, "lengths: unknown key 'rank'; the keys are correlation"),
    ({"prefix": "tree"}, "prefix: unknown kind 'tree'; the kinds are none, system, few-shot, rag, template, chat, agent"),
    ({"prefix": "system:lenght=3"}, "prefix: unknown key 'lenght'; the keys are tokens, prompts, exponent, span_tokens, salts, "),
    ({"prefix": "system:span_tokens=0"}, "prefix.span_tokens: must be from 1 to 65,536, not 0"),
    ({"prefix": "rag:document_tokens=3,in_order=yes"}, "prefix.in_order: must be true or false, not 'yes'"),
    ({"prefix": "rag:document_tokens=(normal:mean=3)"}, "prefix.document_tokens: unknown kind 'normal'"),
    ({"prefix": "few-shot:example_tokens=9,shots=5000"}, "prefix: 5,001 pieces before one request are more than 1,001"),
    ({"prefix": "chat:turns=3"}, "prefix: needs the key 'think_s'"),
    ({"prefix": "system:tokens=10000000,span_tokens=1"}, "prefix: 500,0.*content ids of 1 tokens for 50 prompts"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_recipes(change, message):
    with pytest.raises(InputError, match=f"^{message}") as caught:
        recipe({**SMALL, **change})
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize("part", ["arrivals", "prompt", "output"])
def test_missing_parts(part):
    with pytest.raises(InputError, match=f"^needs the key '{part}'"):
        recipe({name: one for name, one in SMALL.items() if name != part})


@pytest.mark.parametrize(("content", "message"), [
    (b"requests = ", ":1: no TOML: Invalid value"),
    (b"requests = 1\nrequests = 2\n", ":2: no TOML: Cannot overwrite a value"),
    (b"requests = " + b"9" * 5000, ": no TOML: "),
    (b"arrivals = 'all-at-once'\noutput = 1\nprompt = 1\nrequests = 0x" + b"f" * 5000,
     ":4: requests: must be from 1 to 10,000,000, not a number of 20,000 bits"),
    (b"\xff\xfe\x00", ":1: no TOML: byte 0xff is not UTF-8"),
    (b"x = " + b"[" * 100_000, ": no TOML: "),
    (b"#" * 1_000_001, ": longer than 1,000,000 bytes"),
    (b"", ": needs the key 'arrivals'"),
    (b"prompt = 1\noutput = 1\n[arrivals]\nkind = 'poisson'\n\nrte = 4\n", ":6: arrivals: unknown key 'rte'"),
    (b"seed = 1\npromt = 4\n", ":2: unknown key 'promt'"),
    (b"limit = 3\n[traffic]\nprompt = 1\noutput = 1\n[traffic.arrivals]\nkind = 'poisson'\nrate = 0",
     ":7: arrivals.rate: must be above 0.0"),
    (b"arrivals = 'poisson:rate=nan'\nprompt = 1\noutput = 1",
     ":1: arrivals.rate: must be above 0.0 to 1,000,000,000.0, not nan"),
])
def test_bad_files(content, message, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_recipe(path)
    said = str(caught.value)
    assert said.startswith(f"{path}{message}"), said
    assert "\n" not in said and len(said) < 300 + len(str(path))


def test_no_line_is_named_for_what_was_typed():
    text = b"arrivals = 'poisson:rate=1'\nprompt = 1\noutput = 1\n"
    for changed in ({"arrivals.rate": 0}, {"arrivals": "poisson:rate=0"}):
        with pytest.raises(InputError, match=r"\Aa\.toml: arrivals.rate: must be above 0"):
            recipe_of_text(text, "a.toml", changed)


def test_files_that_are_none(tmp_path):
    for path, message in ((tmp_path, "is a directory"), (tmp_path / "none.toml", "no such file"), ("a\0b", "no TOML")):
        with pytest.raises(InputError, match=message) as caught:
            read_recipe(path)
        assert "\n" not in str(caught.value) and "\0" not in str(caught.value)


def test_too_much_is_refused_before_it_is_made():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for prefix in ("system:tokens=10000000", "chat:turns=10000000,think_s=1", "rag:document_tokens=10000000,documents=1000000"):
        with pytest.raises(InputError, match="content ids of 1 tokens"):
            recipe({**SMALL, "requests": 2000, "prompt": 100_000, "output": 1, "prefix": f"{prefix},span_tokens=1"})
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kilobytes


# Traces that lack something

def trace_of(n=300):
    return Trace("a.csv", rng(1).integers(1, 900, n), np.ones(n, np.int64), arrival_us=np.arange(n), notes=("as it was",))


def test_with_prefix_leaves_the_rest():
    trace = trace_of()
    made = with_prefix(trace, "system:tokens=512,prompts=20", rng())
    assert trace.differences(made) == ["content"] and made.source == "a.csv"
    assert made.notes == ("as it was", "prefix identity is made up: system:tokens=512,prompts=20")
    assert np.array_equal(np.diff(made.content.starts), -(-trace.prompt_tokens // 16))
    assert same(made, with_prefix(trace, {"kind": "system", "tokens": 512, "prompts": 20}, rng()))
    assert made.differences(with_prefix(trace, "system:tokens=512,prompts=20", rng(1))) == ["content"]


@pytest.mark.parametrize("spec", ["none", "few-shot:example_tokens=40", "rag:document_tokens=90", "template:tokens=100,salts=3"])
def test_with_every_prefix(spec):
    made = with_prefix(trace_of(), spec, rng())
    assert np.array_equal(np.diff(made.content.starts), -(-made.prompt_tokens // 16))


def test_with_prefix_of_nothing():
    empty = np.zeros(0, np.int64)
    assert len(with_prefix(Trace("a", empty, empty), "system:salts=2", rng()).content.ids) == 0


def test_with_prefix_twice():
    made = with_prefix(trace_of(), "none", rng())
    with pytest.raises(InputError, match=r"^prefix: a.csv has prefix identity of its own"):
        with_prefix(made, "none", rng())


def test_with_output():
    trace = trace_of()
    made = with_output(trace, "profile:name=sharegpt", rng())
    assert trace.differences(made) == ["output_tokens"]
    assert made.notes[1] == "output lengths are made up: profile:name=sharegpt"
    assert np.median(made.output_tokens) == pytest.approx(271, rel=0.25)  # that of outputs, not of prompts
    limited = Trace("b", np.full(99, 5), np.ones(99, np.int64), max_tokens=np.full(99, 30))
    assert with_output(limited, "uniform:least=1,most=90", rng()).output_tokens.max() == 30
    with pytest.raises(InputError, match=r"^--synth-output: unknown kind 'normal'"):
        with_output(trace, "normal:mean=3", rng(), "--synth-output")
    covered = Trace("c", np.array([5]), np.array([5]), content=ContentIds(np.array([0]), np.array([0, 1]), 16, True))
    with pytest.raises(InputError, match=r"^output: c says what its outputs are"):
        with_output(covered, 3, rng())


def test_documents_longer_than_all_prompts_are_not_numbered_to_their_ends():
    made = with_prefix(trace_of(), "rag:document_tokens=10000000,documents=100,span_tokens=4", rng())
    assert int(made.content.ids.max()) < 2 * len(made.content.ids)


def test_with_arrivals():
    trace = trace_of()
    made = with_arrivals(trace, "gamma:rate=3,burstiness=0.5", rng())
    assert trace.differences(made) == ["arrival_us"] and made.notes[1].startswith("arrival times are made up: gamma")
    users = with_arrivals(trace, "closed:users=7,think_s=2", rng())
    assert trace.differences(users) == ["arrival_us", "session", "think_us"]
    assert sorted(set(users.session.tolist())) == list(range(7)) and np.array_equal(users.prompt_tokens, trace.prompt_tokens)
    with pytest.raises(InputError, match=r"^arrivals: requests of a.csv wait for the answer before them"):
        with_arrivals(users, "all-at-once", rng())
    sessions = Trace("b", trace.prompt_tokens, trace.output_tokens, session=np.zeros(300, np.int64))
    with pytest.raises(InputError, match=r"^--synth-arrivals: b has sessions, and users would be others"):
        with_arrivals(sessions, "closed:users=7,think_s=2", rng(), "--synth-arrivals")
