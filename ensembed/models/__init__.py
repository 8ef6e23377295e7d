"""Models: an ensemble of encoders, what is fitted on it, how it is saved, and the one way to open it again.

It may import `engines` and everything below it.
"""
