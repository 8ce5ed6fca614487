"""Reductions: the table, launches, kernels, and the functions of arrays."""
