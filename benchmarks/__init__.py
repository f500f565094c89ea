"""How fast the tool itself is, beside its peers: `make bench`."""
