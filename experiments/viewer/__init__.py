"""The interactive memory map: what a run did, moment by moment, written into one page that shows it."""
