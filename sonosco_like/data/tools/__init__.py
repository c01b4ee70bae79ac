"""Tools for manifests: make them from folders, merge, split and examine them."""
