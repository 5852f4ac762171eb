"""Meta-evaluation: how well scores agree with humans."""
