"""What is shared, to the token: ids are held against prompts written out token by token."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from sim.config import SimConfig
from sim.engine import simulate
from sim.result import scenario
from workloads.pieces import PrefixTree
from workloads.request import InputError, Trace
from workloads.synth import recipe, with_prefix
from workloads.synth.content import Pieces, contents, paths_of
from workloads.synth.conversations import agent, chat
from workloads.synth.draws import Fixed
from workloads.synth.lengths import Tokens, TokensOrNone
from workloads.synth.prefixes import PREFIXES, different, few_shot, popular, rag, system, template

TOKENS = Tokens.__metadata__[0]


def rng(seed=0):
    return np.random.default_rng(seed)


def draw(spec):
    return TOKENS.read(spec, "here")


def some(spec):
    return TokensOrNone.__metadata__[0].read(spec, "here")


def rows_of(content):
    return [content.ids[start:end].tolist() for start, end in pairwise(content.starts)]


def path_tokens(pieces, unit):
    """The tokens before the own ones of a request; equal names are equal tokens, a salt is a part of each name."""
    row = [piece for piece in pieces.table[unit].tolist() if piece >= 0]
    salt = tuple(piece for piece in row if pieces.tokens[piece] == 0)
    return [(salt, piece, place) for piece in row for place in range(pieces.tokens[piece])]


def written_out(pieces, unit, lengths, stream):
    """The first ``lengths[r]`` tokens of each row: its path, then the tokens of its stream."""
    for row, (one, length) in enumerate(zip(unit, lengths, strict=True)):
        path = path_tokens(pieces, one)
        yield path + [("stream", stream[row], place) for place in range(length - len(path))]


def assert_ids_are(content, prompts):
    """Equal ids if and only if everything up to the end of the span is equal; one id for every span that is begun."""
    span, meaning, ids_of = content.span_tokens, {}, {}
    for ids, tokens in zip(rows_of(content), prompts, strict=True):
        assert len(ids) == -(-len(tokens) // span)
        for place, one in enumerate(ids):
            prefix = hash(tuple(tokens[: (place + 1) * span]))
            assert meaning.setdefault(one, prefix) == prefix
            assert ids_of.setdefault(prefix, one) == one


def hits(content, lengths):
    """Blocks found when one request after the other runs on an endless cache, by ids."""
    seen, found = set(), 0
    for ids, length in zip(rows_of(content), lengths, strict=True):
        full = ids[: length // content.span_tokens]
        found += next((place for place, one in enumerate(full) if one not in seen), len(full))
        seen.update(full)
    return found


def hits_by_token(prompts, span):
    """The same by the tokens themselves."""
    seen, found = set(), 0
    for tokens in prompts:
        prefixes = [hash(tuple(tokens[:end])) for end in range(span, len(tokens) + 1, span)]
        found += next((place for place, one in enumerate(prefixes) if one not in seen), len(prefixes))
        seen.update(prefixes)
    return found


ALONE = {
    "none": {},
    "system": {"tokens": draw("uniform:least=10,most=70"), "prompts": 5},
    "few-shot": {"example_tokens": draw("uniform:least=3,most=40"), "families": 4, "shots": draw("uniform:least=1,most=4"),
                 "instruction_tokens": draw(13)},
    "rag": {"document_tokens": draw("uniform:least=5,most=60"), "documents": 6, "retrieved": draw("uniform:least=1,most=4"),
            "system_tokens": draw(21)},
    "template": {"tokens": draw("uniform:least=20,most=50"), "tenant_tokens": draw("uniform:least=1,most=20"), "templates": 3,
                 "tenants": 4},
}


@pytest.mark.parametrize("salts", [0, 3])
@pytest.mark.parametrize("span", [1, 7, 16])
@pytest.mark.parametrize("kind", PREFIXES)
def test_ids_token_by_token(kind, span, salts):
    pieces = PREFIXES[kind](rng(1), 150, **ALONE[kind])
    if salts:
        pieces = pieces.salted(popular(rng(2), 150, salts, 0.0))
    paths = paths_of(pieces, span)
    lengths = rng(3).integers(1, 60, 150) + paths.tokens[paths.which]
    prompts = list(written_out(pieces, range(150), lengths, range(150)))
    content = contents(paths, lengths)
    assert_ids_are(content, prompts)
    assert hits(content, lengths) == hits_by_token(prompts, span)


@pytest.mark.parametrize("kind", [kind for kind in PREFIXES if kind != "none"])
def test_the_tree_that_grows_one_by_one_says_the_same(kind):
    pieces = PREFIXES[kind](rng(1), 200, **ALONE[kind])
    paths = paths_of(pieces, 8)
    lengths = rng(3).integers(1, 60, 200) + paths.tokens[paths.which]
    tree = PrefixTree(8)
    for row, length in enumerate(lengths.tolist()):
        names = [(piece, int(pieces.tokens[piece])) for piece in pieces.table[row].tolist() if piece >= 0]
        tree.add([*names, (("own", row), length - sum(tokens for _, tokens in names))])
    ours, theirs = contents(paths, lengths), tree.content()
    assert np.array_equal(ours.starts, theirs.starts)
    pairs = set(zip(ours.ids.tolist(), theirs.ids.tolist(), strict=True))
    assert len(pairs) == len(set(ours.ids.tolist())) == len(set(theirs.ids.tolist()))


def test_a_prompt_shorter_than_what_is_shared():
    """It shares what it has without its last token: of 33 two whole spans of 16, of 32 and of 17 one, of 16 none."""
    trace = Trace("a", np.array([200, 33, 32, 17, 16, 1]), np.ones(6, np.int64))
    ids = rows_of(with_prefix(trace, "system:tokens=100", rng()).content)
    assert ids[0][:6] == list(range(6))
    assert [len([one for one in row if one < 6]) for row in ids] == [6, 2, 1, 1, 0, 0]
    own = [one for row in ids for one in row if one >= 6]
    assert len(own) == len(set(own)) == 7 + 1 + 1 + 1 + 1 + 1


def test_few_shot_shares_exactly_the_examples():
    pieces = few_shot(rng(), 300, example_tokens=Fixed(50), families=3, shots=Fixed(4), instruction_tokens=Fixed(10))
    paths = paths_of(pieces, 16)
    assert paths.tokens.tolist() == [210, 210, 210]
    ids = rows_of(contents(paths, np.full(300, 260)))
    family = pieces.table[:, 0]
    for row in range(1, 300):
        common = len([one for one, two in zip(ids[0], ids[row], strict=True) if one == two])
        assert common == (210 // 16 if family[row] == family[0] else 0)


def test_more_shots_of_a_family_contain_fewer():
    pieces = few_shot(rng(), 50, example_tokens=Fixed(32), families=1, shots=draw("uniform:least=1,most=3"))
    ids = rows_of(contents(paths_of(pieces, 16), np.full(50, 120)))
    shown = (pieces.table >= 0).sum(axis=1) - 1
    assert set(shown.tolist()) == {1, 2, 3}
    for one in range(50):
        for two in range(one):
            common = next(place for place, (a, b) in enumerate(zip(ids[one], ids[two], strict=True)) if a != b)
            assert common == 2 * min(shown[one], shown[two])


def test_popularity_is_zipf():
    counts = np.bincount(system(rng(), 100_000, prompts=10, exponent=1.2).table[:, 0], minlength=10)
    weights = np.arange(1, 11.0) ** -1.2
    chances = weights / weights.sum()
    assert (np.abs(counts - 100_000 * chances) < 5 * np.sqrt(100_000 * chances)).all()


def test_documents_are_different_and_in_any_order():
    pieces = rag(rng(), 60_000, document_tokens=Fixed(100), documents=3, retrieved=Fixed(2), exponent=1.0)
    pairs = pieces.table[:, 1:] - 1
    assert (pieces.table[:, 0] == 0).all() and (pairs[:, 0] != pairs[:, 1]).all()
    # chances 6/11, 3/11, 2/11: of a set {a, b}, a b / (1 - a) + b a / (1 - b), either order as likely
    chance = np.array([6, 3, 2]) / 11
    for a, b in [(0, 1), (0, 2), (1, 2)]:
        together = chance[a] * chance[b] * (1 / (1 - chance[a]) + 1 / (1 - chance[b]))
        for first, second in [(a, b), (b, a)]:
            share = np.mean((pairs[:, 0] == first) & (pairs[:, 1] == second))
            assert abs(share - together / 2) < 5 * np.sqrt(together / 2 / 60_000)


def test_documents_in_order_share_more():
    arguments = {"document_tokens": Fixed(160), "documents": 5, "retrieved": Fixed(3)}
    lengths = np.full(400, 500)
    found = [hits(contents(paths_of(rag(rng(), 400, **arguments, in_order=order), 16), lengths), lengths)
             for order in (False, True)]
    assert found[0] < found[1]
    table = rag(rng(), 400, **arguments, in_order=True).table
    assert (np.diff(table, axis=1) > 0).all()


@pytest.mark.parametrize("exponent", [0.0, 1.0, 20.0])
def test_all_there_are(exponent):
    drawn = different(rng(), 50, 40, 40, exponent)
    assert np.array_equal(np.sort(drawn, axis=1), np.tile(np.arange(40), (50, 1)))


def test_tenants_share_templates_and_no_more():
    pieces = template(rng(), 400, tokens=Fixed(64), tenant_tokens=Fixed(32), templates=2, tenants=3)
    ids = rows_of(contents(paths_of(pieces, 16), np.full(400, 130)))
    chosen, tenant = pieces.table[:, 0], (pieces.table[:, 1] - 2) % 3
    for row in range(1, 400):
        common = len([one for one, two in zip(ids[0], ids[row], strict=True) if one == two])
        assert common == (chosen[row] == chosen[0]) * (4 + 2 * (tenant[row] == tenant[0]))


def test_salted_tenants_share_nothing():
    pieces = template(rng(), 400, tokens=Fixed(64), tenant_tokens=Fixed(32), templates=2, tenants=3, salted=True)
    tenant = (pieces.table[:, -1] - 2) % 3
    ids = rows_of(contents(paths_of(pieces, 16), np.full(400, 130)))
    of_tenant = [{one for row in np.flatnonzero(tenant == number) for one in ids[row]} for number in range(3)]
    assert all(of_tenant) and not (of_tenant[0] & of_tenant[1] or of_tenant[0] & of_tenant[2] or of_tenant[1] & of_tenant[2])


def test_salts_share_nothing_between_them():
    """One system prompt and two salts: two sets of 16 ids instead of one; a third of the requests is not two halves' sharing."""
    trace = Trace("a", np.full(100, 300), np.ones(100, np.int64))
    plain = with_prefix(trace, "system:tokens=256", rng()).content
    salted = with_prefix(trace, "system:tokens=256,salts=2", rng()).content
    assert hits(plain, trace.prompt_tokens) == 99 * 16
    assert hits(salted, trace.prompt_tokens) == 98 * 16
    assert len({row[0] for row in rows_of(salted)}) == 2


CHAT = {"requests": 300, "arrivals": "poisson:rate=0.2", "prompt": "uniform:least=1,most=40", "output": "uniform:least=1,most=60"}


def by_session(trace):
    return {int(one): np.flatnonzero(trace.session == one) for one in np.unique(trace.session)}


@pytest.mark.parametrize("arrivals", ["poisson:rate=0.2", "closed:users=5,think_s=9"])
def test_the_next_turn_holds_the_last_prompt_and_answer(arrivals):
    prefix = {"kind": "chat", "turns": "uniform:least=1,most=6", "think_s": "exponential:mean=4", "system_tokens": 50}
    trace = recipe({**CHAT, "arrivals": arrivals, "prefix": prefix})
    ids = rows_of(trace.content)
    assert trace.content.cover_output and len(trace) == 300
    assert [len(row) for row in ids] == (-(-(trace.prompt_tokens + trace.output_tokens) // 16)).tolist()
    turns = 0
    for rows in by_session(trace).values():
        for before, after in pairwise(rows):
            said = int(trace.prompt_tokens[before] + trace.output_tokens[before])
            full = said // 16
            if trace.prompt_tokens[after] <= said:     # a user's next chat
                assert trace.think_us[after] == 9_000_000
                assert ids[after][:3] == ids[before][:3] and ids[after][3] != ids[before][3]
                continue
            turns += 1
            assert 1 <= trace.prompt_tokens[after] - said <= 40
            assert ids[after][:full] == ids[before][:full]
            if said % 16:
                assert ids[after][full] != ids[before][full]
    assert turns > 100
    assert {row[2] for row in ids} == {ids[0][2]}      # 50 tokens: three whole spans for all


def test_chat_by_hand():
    rows = chat(rng(), np.array([10, 20, 30, 40, 50]), np.array([1, 2, 3, 4, 5]), turns=Fixed(2), think_s=Fixed(7),
                system_tokens=Fixed(100))
    assert rows.unit.tolist() == rows.stream.tolist() == [0, 0, 1, 1, 2]
    assert rows.own_tokens.tolist() == [10, 31, 30, 73, 50]
    assert rows.pieces.table.tolist() == [[0], [0], [0]] and rows.pieces.tokens.tolist() == [100]


def test_turns_and_thinking():
    table = {**CHAT, "requests": 60_000, "prefix": "chat:turns=(geometric:mean=4),think_s=(exponential:mean=4)", "prompt": 1,
             "output": 1}
    trace = recipe(table)
    lengths = np.bincount(trace.session)[:-1]          # the last one is cut
    assert abs(lengths.mean() - 4) < 5 * np.sqrt(12 / len(lengths))
    thinks = trace.think_us[trace.think_us >= 0] / 1e6
    assert abs(thinks.mean() - 4) < 5 * 4 / np.sqrt(len(thinks))
    assert (np.flatnonzero(trace.think_us < 0) == [rows[0] for rows in by_session(trace).values()]).all()


@pytest.mark.parametrize("span", [1, 16])
def test_conversations_token_by_token(span):
    prompt, output = rng(1).integers(1, 30, 120), rng(2).integers(1, 30, 120)
    arguments = {"calls": draw("uniform:least=1,most=6"), "result_tokens": draw("uniform:least=1,most=50"), "tool_s": Fixed(5),
                 "subagents": some("uniform:least=0,most=2"), "system_tokens": draw("uniform:least=10,most=40"), "prompts": 2}
    rows = agent(rng(3), prompt, output, **arguments)
    paths = paths_of(rows.pieces, span)
    path = paths.tokens[paths.which[rows.unit]]
    by_row = replace(paths, which=paths.which[rows.unit])
    content = contents(by_row, rows.own_tokens + path, output, rows.stream)
    prompts = list(written_out(rows.pieces, rows.unit, rows.own_tokens + path + output, rows.stream))
    assert_ids_are(content, prompts)
    asked = [tokens[:-answer] for tokens, answer in zip(prompts, output.tolist(), strict=True)]
    assert hits(content, rows.own_tokens + path) == hits_by_token(asked, span)


def test_agents_grow_call_by_call():
    """The tokens of each prompt, counted along the tree one call at a time."""
    prompt, output = rng(1).integers(1, 30, 500), rng(2).integers(1, 30, 500)
    arguments = {"calls": draw("uniform:least=1,most=5"), "result_tokens": Fixed(1000), "tool_s": Fixed(5),
                 "subagents": some("uniform:least=0,most=3")}
    rows = agent(rng(3), prompt, output, **arguments)
    assert len(rows.unit) == 500 and (np.diff(rows.unit) >= 0).all() and len(rows.pieces.table) == rows.unit[-1] + 1
    context, handed, spawned = {}, 0, 0
    for row in range(500):
        unit, stream = rows.unit[row], rows.stream[row]
        main = rows.stream[np.flatnonzero(rows.unit == unit)[0]]
        if row and rows.unit[row - 1] != unit:
            handed = 0
        if stream not in context:
            new = prompt[row]
        elif stream == main and handed:
            new, handed = handed, 0
        else:
            new = 1000
        assert rows.own_tokens[row] == context.get(stream, 0) + new
        context[stream] = rows.own_tokens[row] + output[row]
        ends = row == 499 or rows.stream[row + 1] != stream
        if stream != main and ends:
            handed += output[row]
            spawned += 1
    assert spawned > 20


def test_sub_agents_share_the_system_prompt_only():
    prefix = {"kind": "agent", "calls": 3, "result_tokens": 40, "tool_s": 2, "subagents": 2, "system_tokens": 100}
    trace = recipe({"requests": 90, "arrivals": "constant:rate=0.001", "prompt": 20, "output": 30, "prefix": prefix})
    assert trace.session.tolist() == [tree for tree in range(10) for _ in range(9)]
    assert trace.think_us.tolist() == ([-1] + [2_000_000] * 8) * 10
    ids = rows_of(trace.content)
    starts = [row for row in range(90) if trace.prompt_tokens[row] == 120]
    assert len(starts) == 30                           # an agent and two sub-agents in each of ten trees
    for row in starts[1:]:
        assert ids[row][:6] == ids[0][:6] and ids[row][6] not in {one for before in ids[:row] for one in before}


@pytest.mark.parametrize("kind", ["chat", "agent"])
def test_conversations_are_for_recipes(kind):
    with pytest.raises(InputError, match=f"^--synth-prefix: {kind} makes conversations with lengths of their own"):
        with_prefix(Trace("a", np.array([5]), np.array([5])), f"{kind}:turns=3", rng(), "--synth-prefix")


def test_pieces_that_are_too_many():
    with pytest.raises(InputError, match="1,002 pieces before one request are more than 1,001"):
        rag(rng(), 2, document_tokens=Fixed(1), documents=2000, retrieved=Fixed(1001))
    with pytest.raises(InputError, match="1,000 pieces for each of 1,000,000 are more than 100,000,000"):
        few_shot(rng(), 10, example_tokens=Fixed(1), families=1_000_000, shots=Fixed(999))
    with pytest.raises(InputError, match="1,000,000 templates for 2 tenants"):
        template(rng(), 2, tokens=Fixed(5), templates=1_000_000, tenants=2)


def test_ids_that_are_too_many():
    paths = paths_of(Pieces(np.zeros((2, 0), np.int64), np.zeros(0, np.int64)), 1)
    with pytest.raises(InputError, match="120,000,000 content ids of 1 tokens for 2 prompts are more than 100,000,000"):
        contents(paths, np.array([60_000_000, 60_000_000]))


PATHS = {
    "system": {"kind": "system", "tokens": 100, "prompts": 3, "salts": 2},
    "rag": {"kind": "rag", "document_tokens": 70, "documents": 4, "retrieved": 2, "system_tokens": 20},
    "chat": {"kind": "chat", "turns": 4, "think_s": 1000, "system_tokens": 50},
    "agent": {"kind": "agent", "calls": 3, "result_tokens": 40, "tool_s": 1000, "subagents": 1, "system_tokens": 100},
}


@pytest.mark.parametrize("kind", PATHS)
def test_the_simulator_finds_what_a_plain_count_finds(kind):
    """One request at a time on a pool that never fills: of each prompt all but a token can be found, of an answer as well."""
    trace = recipe({**CHAT, "requests": 60, "arrivals": "constant:rate=0.0001", "prefix": PATHS[kind]})
    stats = scenario("paged-prefix", simulate(trace, SimConfig(num_blocks=20_000), "paged-prefix"))["prefix_cache"]
    seen, found = set(), 0
    for ids, prompt, output in zip(rows_of(trace.content), trace.prompt_tokens, trace.output_tokens, strict=True):
        asked = ids[: (prompt - 1) // 16]
        found += next((place for place, one in enumerate(asked) if one not in seen), len(asked))
        seen.update(ids[: (prompt + output - 1) // 16 if trace.content.cover_output else prompt // 16])
    assert stats["hit_tokens"] == 16 * found > 0
