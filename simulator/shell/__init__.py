"""Help at the shell: completion of the command line, and the examples of configs/."""
