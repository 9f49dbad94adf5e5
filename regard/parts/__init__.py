"""What models are made of: one formula a part."""
