"""Vidur and Etalon: CSV of prefill and decode lengths, with or without arrival times in seconds.

Times are decimal text such as 4.314579, read exactly. Rows of length files need not be independent requests: in
Etalon's sharegpt_8k neighbours are turns of one conversation, with nothing in the file that says so.
Source: microsoft/vidur (MIT), project-etalon/etalon (Apache-2.0).
"""

from __future__ import annotations

from workloads.readers.kinds import UNITS
from workloads.readers.table_format import SEQUENCES, Column, table_reader

READER = table_reader("vidur", "Vidur, Etalon: [arrived_at,]num_prefill_tokens,num_decode_tokens",
                      {"time": Column("arrived_at", UNITS["s"], False), "prompt": Column("num_prefill_tokens"),
                       "output": Column("num_decode_tokens"), **SEQUENCES})
