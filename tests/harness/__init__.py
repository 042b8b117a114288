"""What tests share: clusters, the service, load, witnesses, ways to break things."""
