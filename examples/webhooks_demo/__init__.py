"""What ``examples/webhooks.py`` is made of: intake, business table, delivery, sink, crew and verdict."""
