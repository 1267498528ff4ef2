"""The command line ``txtopo``; nothing imports it."""
