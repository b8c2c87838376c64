"""Programs that peers' own Pythons run: each replays one file with the peer and says how long its own part took."""
