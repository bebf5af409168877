"""The demonstration, and the page of results beside the paper's, from runs."""
