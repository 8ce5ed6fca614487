"""What several folders of tests share: layouts, threads, counts of calls and memory, examples of properties."""
