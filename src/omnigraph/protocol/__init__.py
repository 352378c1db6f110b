"""The HTTP protocol: requests, responses and their encoding, shared by server and client."""
