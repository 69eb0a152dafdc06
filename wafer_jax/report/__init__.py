"""Tables, comparisons and plots of what was run, for notebooks, the terminal and JSON."""
