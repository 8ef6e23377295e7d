"""Integrations with other libraries: one file for each, importable only with its extra installed.

What belongs here makes ensembed's models usable in another library. Integrations may import everything below them, but
not the command line or the server; of ensembed, only the command line imports them.
"""
