"""Numbers without sentences: row-aligned matrices, moments, eigenproblems, and their versions for a GPU.

It may import `support` and `errors`.
"""
