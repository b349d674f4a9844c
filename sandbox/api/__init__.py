"""The API server double: objects, their life and their readers, over HTTPS as kubectl and clients expect it."""
