"""One small file, or a few, of every public format, with the columns a person works out from the format's description.

A Sample is written into a folder by `put`; `columns` makes what was read comparable. Ids and sessions are compared by where they
are equal, numbered by first appearance.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from cli_run import run

from workloads.readers import ReadOptions


@dataclass(frozen=True)
class Sample:
    """``text`` is the file itself, ``beside`` what lies beside it; the rest is expected, in file order."""

    name: str
    format: str
    text: str
    prompt: list[int]
    output: list[int] | None
    arrival_us: list[int] | None = None
    session: list[int] | None = None
    think_us: list[int] | None = None
    ids: list[list[int]] | None = None
    span: int | None = None
    beside: dict[str, str] = field(default_factory=dict)
    file: str = "no-name"
    options: ReadOptions = field(default_factory=ReadOptions)

    @property
    def kind(self) -> str:
        """How it is written: csv, lines, or document."""
        if not self.text.lstrip().startswith(("{", "[")):
            return "csv"
        return "lines" if self.format not in DOCUMENTS and self.text.startswith("{") else "document"

    @property
    def expected(self):
        return self.prompt, self.output, self.arrival_us, self.session, self.think_us, self.ids, self.span


DOCUMENTS = ("kv-cache-tester", "vllm-bench", "sharegpt")


def put(folder: Path, sample: Sample, data: bytes | None = None, file: str | None = None) -> Path:
    """Write a sample and what lies beside it; ``data`` in place of its text."""
    for name, text in sample.beside.items():
        (folder / name).write_text(text)
    path = folder / (file or sample.file)
    path.write_bytes(sample.text.encode() if data is None else data)
    return path


def columns(rows):
    """As `Sample.expected`."""
    def listed(column):
        return None if column is None else np.asarray(column).tolist()

    content = rows.content
    lists = None if content is None else [part.tolist() for part in np.split(content.ids, content.starts[1:-1])]
    return (listed(rows.prompt_tokens), listed(rows.output_tokens), listed(rows.arrivals_us()),
            renumbered(listed(rows.besides.get("session"))), listed(rows.besides.get("think_us")),
            None if lists is None else by_appearance(lists), None if content is None else content.span_tokens)


def complaint(capsys, path, *more):
    """The one line of the command line, which is that of the reader too."""
    said = run(capsys, "compare", path, *more)
    assert said.status == 2, said.out
    assert said.out == ""
    assert said.err.count("\n") == 1 and said.err.endswith("\n")
    assert "Traceback" not in said.err
    assert said.err.isprintable() or said.err[:-1].isprintable()
    message = said.err.removeprefix("pagedsim compare: error: ").rstrip("\n")
    assert message.startswith(str(path)), message
    assert len(message) < len(str(path)) + 420
    return message.removeprefix(str(path))


def renumbered(names):
    """Numbers in order of appearance; -1 stays."""
    known = {-1: -1}
    return None if names is None else [known.setdefault(name, len(known) - 1) for name in names]


def by_appearance(lists):
    """The same for lists of ids."""
    known = {}
    return [[known.setdefault(one, len(known)) for one in ids] for ids in lists]


def lines(*rows):
    """JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def length_row(t, p, o, ids=None, **more):
    """A row with Mooncake's keys."""
    return {"timestamp": t, "input_length": p, "output_length": o, **({} if ids is None else {"hash_ids": ids}), **more}


TOKENS = list(range(100, 116))
SESSION = {
    "id": "trace_1", "models": ["m"], "block_size": 64, "hash_id_scope": "local", "tool_tokens": 9, "system_tokens": 20,
    "requests": [
        {"t": 0.0, "type": "s", "model": "m", "in": 130, "out": 5, "hash_ids": [1, 2], "input_types": ["text"], "stop": "",
         "api_time": 1.0, "ttft": 0.2},
        {"t": 10.5, "type": "subagent", "requests": [
            {"t": 0.0, "type": "n", "model": "m", "in": 64, "out": 7, "hash_ids": [3]},
            {"t": 0.25, "type": "n", "model": "m", "in": 128, "out": 8, "hash_ids": [3, 4], "think_time": 0.1}]},
        {"t": 10.6, "type": "n", "model": "m", "in": 200, "out": 9, "hash_ids": [1, 2, 5], "think_time": 2.5, "api_time": 3}],
    "totals": {"requests": 4}}
SESSION_COLUMNS = {
    "prompt": [130, 64, 200, 128], "output": [5, 7, 9, 8], "arrival_us": [0, 10_500_000, 10_600_000, 10_750_000],
    "session": [0, 1, 0, 1], "think_us": [-1, -1, 2_500_000, 100_000], "ids": [[0, 1], [2], [0, 1, 3], [2, 4]], "span": 64}
RAGPULSE = lines(
    {"timestamp": "10", "input_length": 30, "output_length": 3, "session_id": "17-a", "hash_ids": {
        "sys_prompt": [1], "passages_ids": [7], "history": [], "web_search": [], "user_input": [4]}},
    {"timestamp": "4", "input_length": 30, "output_length": 4, "session_id": "17-b", "hash_ids": {
        "sys_prompt": [1], "passages_ids": [7], "history": [], "web_search": [], "user_input": [5]}},
    {"timestamp": "4", "input_length": 42, "output_length": 5, "session_id": "17-a", "hash_ids": {
        "sys_prompt": [1], "passages_ids": [8], "history": [2], "web_search": [3], "user_input": [4]}},
    {"timestamp": "11", "input_length": 48, "output_length": 6, "session_id": "17-b", "hash_ids": {
        "sys_prompt": [1], "passages_ids": [8], "history": [6], "web_search": [3], "user_input": []}}) + "\n"
SIDES = {"1_sys_prompt.jsonl": lines({"sys_prompt_id": 1, "token_length": 16}),
         "2_passages.jsonl": lines({"passage_id": 7, "token_length": 8}, {"passage_id": 8, "token_length": 10}),
         "3_history.jsonl": lines({"history_id": 2, "token_length": 5}, {"history_id": 6, "token_length": 16}),
         "4_user_input.jsonl": lines({"user_input_id": 4, "token_length": 2}, {"user_input_id": 5, "token_length": 1}),
         "5_web_search.jsonl": lines({"web_search_id": 3, "token_length": 6})}
RAG_COLUMNS = {"prompt": [30, 30, 42, 48], "output": [3, 4, 5, 6], "arrival_us": [6_000_000, 0, 0, 7_000_000],
               "session": [0, 1, 0, 1]}
OWN = """# made by: pagedsim trace synth chat.toml
# hash_ids: 16 tokens each, over prompt and output
arrival_us,prompt_tokens,output_tokens,max_tokens,session,think_us,priority,samples,hash_ids
0,40,24,64,a,-1,0,1,0 1 2 3
900000.5,80,30,30,a,500000,-2,2,0 1 2 3 4 5 6
1000002,5,3,4,,-1,0,1,
"""

SAMPLES = [
    Sample("azure-2023", "azure", "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n"
           "2023-11-16 18:15:50.9951690,396,109", [374, 396], [44, 109], [0, 4_314_579]),
    Sample("azure-2024", "azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2399,5\n"
           "2024-05-10 00:00:01+00:00,10,6\n2024-05-09 23:59:59.5+00:00,11,0\n", [2399, 10, 11], [5, 6, 0],
           [509_930, 1_500_000, 0]),
    Sample("azure-2025", "azure-images", "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
           "2025-01-02 03:04:05.000001,2,700,9\n2025-01-02 03:04:06,0,8,7\n", [700, 8], [9, 7], [0, 999_999]),
    Sample("burstgpt-1", "burstgpt", "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
           "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,0,0,0,Conversation log\n45,GPT-4,1087,230,1317,API log\n",
           [472, 0, 1087], [18, 0, 230], [0, 40_000_000, 40_000_000]),
    Sample("burstgpt-3", "burstgpt",
           "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
           "19440110.0,17,3.25,ChatGPT,10,20,30,Conversation log\n19440110.75,,1.5,GPT-4,5,6,11,API log\n"
           "19440112.125,17,0.5,ChatGPT,40,7,47,Conversation log\n",
           [10, 5, 40], [20, 6, 7], [0, 750_000, 2_125_000], [0, -1, 0]),
    Sample("mooncake", "mooncake", lines(length_row(3000, 1100, 7, [0, 1, 2]), length_row(0, 512, 8, [0]),
                                         length_row(3000, 513, 0, [0, 9])),
           [1100, 512, 513], [7, 8, 0], [3_000_000, 0, 3_000_000], ids=[[0, 1, 2], [0], [0, 3]], span=512),
    Sample("mooncake-16", "mooncake", lines(length_row(0, 33, 7, [5, 6, 7]), length_row(1, 48, 8, [5, 6, 8])),
           [33, 48], [7, 8], [0, 1000], ids=[[0, 1, 2], [0, 1, 3]], span=16),
    Sample("mooncake-64", "mooncake", lines(length_row(0, 65, 7, [1, 2], request_id=1), length_row(0, 640, 8, [*range(1, 11)])),
           [65, 640], [7, 8], [0, 0], ids=[[0, 1], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]], span=64),
    Sample("mooncake-names", "mooncake", lines({"created_time": 12.5, "input_tokens": 3, "output_tokens": 4},
                                               {"created_time": 13, "input_tokens": 5, "output_tokens": 6}),
           [3, 5], [4, 6], [0, 500]),
    Sample("mooncake-sessions", "mooncake", lines(
        length_row(1000, 20, 5, session_id="a"), length_row(1500, 9, 6, session_id="b"),
        {"delay": 250, "input_length": 45, "output_length": 4, "session_id": "a"},
        length_row(None, 60, 3, session_id="a", delay=0.5)),
           [20, 9, 45, 60], [5, 6, 4, 3], [0, 500_000, 250_000, 250_500], [0, 1, 0, 0], [-1, -1, 250_000, 500]),
    Sample("qwen", "qwen", lines(
        {"chat_id": 159, "parent_chat_id": -1, "type": "text", "turn": 1, **length_row(61.114, 20, 10, [1, 2])},
        {"chat_id": 160, "parent_chat_id": 159, "type": "text", "turn": 2, **length_row(61.2, 33, 5, [1, 3, 4])},
        {"chat_id": 161, "parent_chat_id": 7, "type": "file", "turn": 5, **length_row(60.614, 5, 4, [9])},
        {"chat_id": 162, "parent_chat_id": 160, "type": "text", "turn": 3, **length_row(70, 16, 1, [1])}),
           [20, 33, 5, 16], [10, 5, 4, 1], [500_000, 586_000, 0, 9_386_000], [0, 0, 1, 0],
           ids=[[0, 1], [0, 2, 3], [4], [0]], span=16),
    Sample("servegen-offline-a", "servegen-offline", lines(
        {"request_id": 0, "type": "text", "input_length": 40, "hash_ids": [625269, 625270, 625271], "img_ids": []},
        {"request_id": 1, "type": "text", "input_length": 16, "hash_ids": [625269], "img_ids": []}),
           [40, 16], None, ids=[[0, 1, 2], [0]], span=16),
    Sample("servegen-offline-d", "servegen-offline", lines(
        {"request_id": 0, "type": "text", "input_length": 61, "output_length": 2370, "duration": 14000},
        {"request_id": 1, "type": "text", "input_length": 54, "output_length": 5, "duration": 30}), [61, 54], [2370, 5]),
    # 16 + 8 + 2 of 30 tokens: the second span is the question's; 16 + 10 + 5 + 6 + 2 of 42 and 16 + 10 + 16 + 6: history before
    # what was found in the web, so these two share one span; the other way round it would be two
    Sample("ragpulse", "ragpulse", RAGPULSE, **RAG_COLUMNS, ids=[[0, 1], [0, 2], [0, 3, 4], [0, 5, 6]], span=16, beside=SIDES),
    Sample("ragpulse-alone", "ragpulse", RAGPULSE, **RAG_COLUMNS),
    Sample("kv-session", "kv-cache-tester", json.dumps(SESSION, indent=1), **SESSION_COLUMNS),
    Sample("kv-one-line", "kv-cache-tester", json.dumps(SESSION), **SESSION_COLUMNS),
    Sample("kv-table", "kv-cache-tester-table",
           "trace,subagent_path,idx,t_s,type,in_tokens,out_tokens,n_hash_ids,lcp_with_prev_blocks,api_time_s,think_time_s,stop\n"
           "t1,,0,0.5,n,130,5,2,0,1.0,,\nt1,,1,2.75,s,200,6,3,2,,1.5,end_turn\nt1,1/,0,2.5,s,70,7,1,0,,0.25,\n"
           "t2,,0,0.5,s,9,8,0,0,,0,\n",
           [130, 200, 70, 9], [5, 6, 7, 8], [0, 2_250_000, 2_000_000, 0], [0, 0, 1, 2], [-1, 1_500_000, 250_000, 0]),
    Sample("lmcache-texts", "lmcache-agent", lines(
        {"timestamp": 1_700_000_000_000_000, "input": "a" * 64 + "bcd", "output": "12345", "session_id": "s1"},
        {"timestamp": 1_700_000_000_001_500, "input": "a" * 64 + "xyz\u20ac", "output": "", "session_id": "s2"}),
           [17, 18], [2, 0], [0, 1500], [0, 1], ids=[[0, 1], [0, 2]], span=16),
    Sample("lmcache-lengths", "lmcache-agent", lines(length_row(0.0, 33, 4, [0, 1, 2], session=3),
                                                     length_row(1.25, 16, 5, [0], session=4), length_row(2, 0, 5, [], session=3)),
           [33, 16, 0], [4, 5, 5], [0, 1250, 2000], [0, 1, 0], ids=[[0, 1, 2], [0], []], span=16),
    Sample("llmservingsim", "llmservingsim", lines(
        {"input_toks": 18, "output_toks": 2, "arrival_time_ns": 1500, "input_tok_ids": [*TOKENS, 1, 2], "output_tok_ids": [3, 4]},
        {"input_toks": 17, "output_toks": 16, "arrival_time_ns": 4500, "input_tok_ids": [*TOKENS, 9], "output_tok_ids": TOKENS}),
           [18, 17], [2, 16], [0, 3], ids=[[0, 1], [0, 2, 3]], span=16),
    Sample("splitwise-sim", "splitwise-sim",
           "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
           "0,2,0,0.5,1,512,10\n1,2,0,3.0,1,64,20\n", [512, 64], [10, 20], [0, 2_500_000]),
    Sample("apex", "apex", "start_time_offset_ns,context_tokens,generated_tokens\n1500,7,8\n2000000,9,10\n",
           [7, 9], [8, 10], [0, 1998]),                # 1998.5 us: half to even
    Sample("apex-lines", "apex-lines", '{"StartTimeOffset": 1500, "ContextTokens": 7, "GeneratedTokens": 8, "TotalTokens": 15, '
           '"SynthesizedBody": "x", "RequestID": 1}\n{"StartTimeOffset": 2000000, "ContextTokens": 9, "GeneratedTokens": 10}\n',
           [7, 9], [8, 10], [0, 1998]),
    Sample("vtc", "vtc-arena", "req_time_s,client,prompt_tokens,output_tokens\n0.0,vicuna-13b,7,8\n0.4,koala-13b,9,10\n",
           [7, 9], [8, 10], [0, 400_000]),
    Sample("vidur-lengths", "vidur", "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.85\n",
           [3772], [54]),
    Sample("vidur-times", "vidur", "arrived_at,num_prefill_tokens,num_decode_tokens\n4.314579,3,4\n0.0000005,5,6\n",
           [3, 5], [4, 6], [4_314_578, 0]),            # 4,314,578.5 us: half to even
    Sample("vllm-times", "vllm-bench", json.dumps({
        "date": "20250101-000000", "backend": "vllm", "num_prompts": 2, "request_rate": "inf", "duration": 3.5, "completed": 2,
        "input_lens": [11, 12], "output_lens": [128, 0], "start_times": [12345.5, 12345.25], "ttfts": [0.1, 0.0],
        "itls": [[0.01], []], "generated_texts": ["x", ""], "errors": ["", "timeout"]}),
           [11, 12], [128, 0], [250_000, 0]),
    Sample("vllm", "vllm-bench", json.dumps({"input_lens": [11, 12], "output_lens": [128, 3], "ttfts": [0.1, 0.2]}, indent=2),
           [11, 12], [128, 3]),
    Sample("sharegpt", "sharegpt", json.dumps([
        {"id": "a", "conversations": [{"from": "human", "value": "x" * 65}, {"from": "gpt", "value": "hello"},
                                      {"from": "human", "value": "more"}]},
        {"id": "b", "conversations": [{"from": "human", "value": "alone"}]},
        {"id": "c", "conversations": [{"from": "human", "value": "x" * 64}, {"from": "gpt", "value": "1234"}]}]),
           [17, 16], [2, 1], ids=[[0, 1], [0]], span=16),
    Sample("json-lengths-array", "json-lengths", '[{"prompt_len": 5, "output_len": 6},\n {"prompt_len": 7, "output_len": 8}]',
           [5, 7], [6, 8]),
    Sample("json-lengths-lines", "json-lengths", lines({"prompt_tokens": 5, "completion_tokens": 6, "model": "m"}), [5], [6]),
    Sample("csv", "csv", OWN, [40, 80, 5], [24, 30, 3], [0, 900_000, 1_000_002], [0, 0, -1], [-1, 500_000, -1],
           [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6], []], 16),
    Sample("csv-seconds", "csv", "arrival_s,prompt_tokens,output_tokens\n1e-06,1,2\n2.5,3,4\n", [1, 3], [2, 4], [0, 2_499_999]),
    Sample("csv-lengths", "csv", "prompt_tokens,output_tokens\n21,518\n8,66\n", [21, 8], [518, 66]),
]
BY_NAME = {sample.name: sample for sample in SAMPLES}
