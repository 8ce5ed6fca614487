"""What an array is to Python: dtypes, values, views, and memory that NumPy sees."""
