"""A seeded simulator of the overlay: it drives the very machines that the broker drives."""
