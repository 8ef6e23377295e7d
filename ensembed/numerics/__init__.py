"""Numbers without sentences: matrices, moments, eigenproblems, on GPUs too. It may import `support` and `errors`."""
