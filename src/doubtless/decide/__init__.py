"""Decisions: the number to act on when one kind of mistake costs more than the other."""
