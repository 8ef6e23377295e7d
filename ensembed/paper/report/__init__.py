"""The report of `ensembed reproduce`: one page with tables and figures.

It may import everything else in this room; nothing in this room imports it.
"""
