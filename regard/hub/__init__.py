"""Hugging Face model folders: reading, writing and downloading."""
