"""Sizing without traffic: the plan, what it would take, and pasted server commands (`pagedsim plan`)."""
