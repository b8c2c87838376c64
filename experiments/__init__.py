"""What we learn: the commands, the comparison, the cross-checks and the figures."""
