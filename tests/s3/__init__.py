"""Tests on a real S3 server."""
