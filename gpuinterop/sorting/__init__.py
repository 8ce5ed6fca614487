"""Sorting, running sums and products, searching in sorted arrays, and distinct elements."""
