"""Tables and figures of the documentation and of the paper, computed again from a command."""
