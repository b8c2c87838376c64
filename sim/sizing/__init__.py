"""The sizes: the analytic formula, models, GPUs and the budget they leave for the KV cache."""
