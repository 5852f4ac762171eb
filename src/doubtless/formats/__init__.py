"""File formats: bytes to columns with the line of each row, and back.

One module a format. A parser gathers its rows chunk by chunk, so that a large file never stands in memory
as Python objects; every refusal is an :class:`~doubtless.errors.InputError`, one sentence that names file
and line.
"""
