"""States of txtopo in a folder of JSON files: the smallest plug-in of each interface."""
