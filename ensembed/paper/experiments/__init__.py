"""The experiments: what is tried on a laboratory, and what it finds.

They may import the laboratory, the findings and what lies below them; no table and no page.
"""
