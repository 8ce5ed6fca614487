"""Index arrays and masks: reads, writes, and functions that move elements."""
