"""Tests of the server: real uvicorn, real sockets on loopback."""
