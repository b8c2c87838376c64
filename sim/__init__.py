"""What happens: the KV-cache allocators, the scheduler, the clock and the ledger."""
