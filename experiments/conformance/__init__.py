"""Cases recorded from a real vLLM scheduler, replayed and compared decision by decision (`pagedsim conform`)."""
