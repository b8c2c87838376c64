"""Azure LLM inference traces: CSV with calendar times, no prefix identity.

2023: CRLF, no zone, always seven digits after the point (100 ns). 2024: the same header, LF, +00:00, six digits or none (one
of its files mixes both). 2025, multimodal: NumImages besides; the tokens of images are not in the file.
Source: Azure/AzurePublicDataset (CC-BY-4.0); Patel et al., Splitwise, ISCA 2024.
"""

from __future__ import annotations

from workloads.readers.kinds import CALENDAR_TIME
from workloads.readers.table_format import Column, table_reader

LENGTHS = {"time": Column("TIMESTAMP", CALENDAR_TIME), "prompt": Column("ContextTokens"), "output": Column("GeneratedTokens")}

READER = table_reader("azure", "Azure 2023 and 2024: TIMESTAMP,ContextTokens,GeneratedTokens", LENGTHS)
IMAGES = table_reader("azure-images", "Azure 2025, multimodal: TIMESTAMP,NumImages,ContextTokens,GeneratedTokens", LENGTHS,
                      ("NumImages",),
                      ("images are counted in the file, their tokens are not: ContextTokens are taken as they stand",))
