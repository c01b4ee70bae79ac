"""What one does with manifests beside training: make them from folders, merge, split and examine them."""
