"""Mooncake: JSON lines, times in milliseconds, prefix identity in blocks of 512 tokens.

The format carries no block size, and other tools write it with 16 or 64, so the size is what all rows agree on. Some add
``session_id``, and in later turns ``delay`` (ms after the answer before) instead of a time. Arrivals are quantised to about
3 s: many rows share a stamp. Source: kvcache-ai/Mooncake (Apache-2.0).
"""

from __future__ import annotations

from workloads.readers.json_format import JsonRoles, json_reader

SPANS = (512, 16, 64, 256, 128, 32, 1024, 2048, 8)
LENGTHS = JsonRoles(
    prompt=("input_length", "input_tokens"), output=("output_length", "output_tokens"), time=("timestamp", "created_time"),
    ids=("hash_ids",), spans=SPANS, session=("session_id",), delay=("delay",),
    optional=frozenset(("time", "ids", "session")))

READER = json_reader("mooncake", "Mooncake and its like: JSON lines, timestamp in ms, hash_ids of 512 tokens (or what fits)",
                     LENGTHS, foreign=("chat_id",))
