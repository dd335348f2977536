"""The HTTP/1.1 server that the page and the feed share. Imports only trio and h11."""
