"""What the processes of a cluster run when they embed a corpus.

It is a room of its own because each of them imports it before it does anything: nothing here needs the methods, and so
scipy, which would double the time that takes.
"""
