"""One module per request API: its handler, and the `Api` row with its versions, listeners and ACL."""
