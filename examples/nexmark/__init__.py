"""NEXMark: the queries of an auction house over persons, auctions and bids.

See docs/explanation/nexmark.md.
"""
