"""Crashes, bad inputs, planted bugs and strangers."""
