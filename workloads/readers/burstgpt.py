"""BurstGPT: CSV with spaces in its header, times in seconds, no prefix identity.

BurstGPT_1 has whole seconds, so requests of one stamp came one after the other; BurstGPT_3 has a session and floats. Failed
requests have zero lengths and are left out. Source: HPMLL/BurstGPT (CC-BY-4.0); Wang et al., KDD 2025.
"""

from __future__ import annotations

from workloads.readers.kinds import UNITS
from workloads.readers.table_format import Column, table_reader

READER = table_reader("burstgpt", "BurstGPT: Timestamp,[Session ID,]Model,Request tokens,Response tokens",
                      {"time": Column("Timestamp", UNITS["s"]), "prompt": Column("Request tokens"),
                       "output": Column("Response tokens"), "session": Column("Session ID", needed=False)})
