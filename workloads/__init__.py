"""What arrives: request traces, read from public formats or made up from a seed."""
