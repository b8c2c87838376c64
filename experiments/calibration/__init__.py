"""Predicted beside measured: readers of measurements, the fit, the replay, and what is said about them."""
