"""A seeded simulator of the overlay: it drives the machines the broker drives."""
