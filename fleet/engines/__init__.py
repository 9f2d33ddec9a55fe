"""Inference engines by their own pages: what is read there, and what may be concluded from it."""
