"""Tables of single projects: CSV with times, no prefix identity.

Splitwise-sim (MIT): seconds; ids of requests. APEX+ (MIT): nanoseconds from the start, as
JSON lines or as a table. VTC (Apache-2.0): seconds of Chatbot Arena
requests scaled to ten minutes; its clients are the models that were asked.
"""

from __future__ import annotations

from workloads.readers.json_format import JsonRoles, json_reader
from workloads.readers.kinds import UNITS
from workloads.readers.table_format import Column, table_reader

NANOSECONDS = -9
SPLITWISE_SIM = table_reader(
    "splitwise-sim", "Splitwise-sim: request_id,arrival_timestamp,prompt_size,token_size",
    {"time": Column("arrival_timestamp", UNITS["s"]), "prompt": Column("prompt_size"), "output": Column("token_size"),
     "request": Column("request_id")})
APEX_LINES = json_reader(
    "apex-lines", "APEX+ as published: JSON lines StartTimeOffset (ns), ContextTokens, GeneratedTokens",
    JsonRoles(prompt=("ContextTokens",), output=("GeneratedTokens",), time=("StartTimeOffset",), time_unit=NANOSECONDS))
APEX = table_reader(
    "apex", "APEX+: start_time_offset_ns,context_tokens,generated_tokens",
    {"time": Column("start_time_offset_ns", UNITS["ns"]), "prompt": Column("context_tokens"),
     "output": Column("generated_tokens")})
VTC = table_reader(
    "vtc-arena", "VTC: req_time_s,client,prompt_tokens,output_tokens",
    {"time": Column("req_time_s", UNITS["s"]), "prompt": Column("prompt_tokens"), "output": Column("output_tokens")}, ("client",))
