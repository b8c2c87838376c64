"""ServeGen's offline jobs: JSON lines without times; a, b and c have ids but no outputs, d, e and f outputs but no ids.

Source: alibaba/ServeGen (Apache-2.0).
"""

from __future__ import annotations

from workloads.readers.json_format import JsonRoles, json_reader

READER = json_reader(
    "servegen-offline", "ServeGen offline: JSON lines, request_id, input_length, output_length or hash_ids of 16 tokens",
    JsonRoles(prompt=("input_length",), output=("output_length",), ids=("hash_ids",), spans=(16,), request=("request_id",),
              optional=frozenset(("output", "ids"))), foreign=("timestamp",))
