"""ensembed at home in other libraries: one module for each, importable with its extra installed.

Of the rest of ensembed only the command line imports them.
"""
