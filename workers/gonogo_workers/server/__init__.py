"""The service, as a device host sees it: over HTTPS, with the host's token (docs/protocol.md)."""
