"""alkstore measured side by side with its floors and with what users would pick instead. See README.md here."""
