"""The API server double: objects, their lifecycle and their readers, over HTTPS as kubectl and clients expect it."""
