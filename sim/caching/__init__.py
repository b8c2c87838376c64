"""The cache view: what a prefix cache of a size, a policy and a block size finds, without clock, queue or model."""
