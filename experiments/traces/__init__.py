"""What is done with request traces: looking, making, converting, cutting, scaling, merging, sampling (`pagedsim trace`)."""
