"""The published figures and claims, each reproduced by one small module: CONFIG, run() -> Outcome, plot()."""
