"""What an attacker can do who knows the gates: how much poison gets past them, against how much of it is kept out."""
