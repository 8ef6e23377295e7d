"""The tables that are made from findings, and their formats.

They may import findings, published figures and the constants of experiments; they run nothing.
"""
