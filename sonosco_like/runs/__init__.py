"""The run folder: its files and their names, checkpoints and pointers, lock, journal, remote copy, table of runs.

Nothing is imported here, so that a command may ask for the names of files without waiting for torch.
"""
