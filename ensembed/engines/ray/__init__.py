"""The engine for many machines: Ray Data encodes, Ray tasks compute moments, Ray Train trains.

It is empty because every worker process imports it first. ray itself is imported where it is used.
"""
