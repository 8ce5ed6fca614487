"""Operations on single elements: the table, dtypes, kernels, calls and results."""
