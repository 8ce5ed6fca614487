"""Memory that other processes of the machine open: `share`, the handle that it returns, and `shared_empty`."""
