"""What is measured: alkstore, the floors below it, and its peers, which may need an environment of their own."""
