"""What-if experiments: scenarios, their grids of points, the store, the answers."""
