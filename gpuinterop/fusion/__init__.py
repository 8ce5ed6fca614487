"""Expressions, fused functions and users' kernels: a graph of operations as few kernels."""
