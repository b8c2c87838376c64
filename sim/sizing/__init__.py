"""The sizes: what a model leaves of a GPU, the pool and the start-up report, by vLLM version; the plan and its inverse."""
