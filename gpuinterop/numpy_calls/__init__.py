"""Calls that NumPy carries out on the memory of the arrays."""
