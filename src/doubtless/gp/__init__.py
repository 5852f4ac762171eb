"""Gaussian processes, plain and warped, and the features of translations that they are fitted on."""
