"""The memory: an address space with holes, a pool of blocks, and the allocators on them."""
