"""How fast `mirror` copies compared with its peers: `make bench`, not `make test`."""
