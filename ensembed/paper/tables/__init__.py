"""The tables that are made from findings, and their formats."""
