"""How fast `mirror` copies beside its peers: `make bench`, not `make test`."""
