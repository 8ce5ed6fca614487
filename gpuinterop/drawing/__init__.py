"""Pictures of the memory of arrays, as SVG and as text."""
