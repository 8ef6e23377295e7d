"""Numbers without sentences: matrices, moments, eigenproblems, on GPUs too. May import `support` and `errors`."""
