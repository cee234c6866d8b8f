"""The code version of this room, free of torch so that planning can put it into keys."""

__all__ = ["SUBJECT_VERSION"]

SUBJECT_VERSION = 2
"""Part of the key of every reading, because measures build on `genbench.subject` and on the worker that takes
readings. Raise it when the same measure would read other bits off the same network."""
