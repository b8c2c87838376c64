"""What prefix caching gains: curves, policies, tiers, serving and the money (`pagedsim prefix`)."""
