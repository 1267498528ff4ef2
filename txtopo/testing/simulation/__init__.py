"""A whole topology in virtual time, from one seed."""
