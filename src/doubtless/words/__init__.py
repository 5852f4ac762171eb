"""Word-level quality: what looks wrong in a translation, and how well that is known."""
