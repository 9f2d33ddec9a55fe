"""Simulated days of engines with a known truth, on virtual time, and checks that judge them."""
