"""ensembed at home in other libraries: one module for each, importable with its extra installed.

Nothing here is imported by the rest of ensembed.
"""
