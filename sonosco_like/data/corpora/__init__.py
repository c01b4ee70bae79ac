"""Corpora: speech made on the spot, and public recordings brought into manifests. Import the module you need."""
