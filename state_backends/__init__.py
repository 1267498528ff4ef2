"""State backends that come with txtopo; each is a plug-in like any other."""
