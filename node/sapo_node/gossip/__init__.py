"""The rules of gossip, without IO: nothing here reads a clock, a socket or a stream."""
