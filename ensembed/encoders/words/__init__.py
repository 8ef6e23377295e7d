"""Word vectors and how to pool them."""
