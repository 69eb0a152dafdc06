"""Kinds of attention layers, one file each."""
