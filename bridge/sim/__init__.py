"""A seeded simulator of the overlay: it drives the machines that the broker drives."""
