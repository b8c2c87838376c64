"""HTML pages that stand alone, readable from disk without a network: what the map, the reports and the quiz are made of."""
