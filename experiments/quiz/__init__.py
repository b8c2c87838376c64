"""`pagedsim quiz`: exercises on fragmentation and paging, drawn by a seed, worked out by the simulator."""
