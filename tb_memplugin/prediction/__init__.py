"""What a training would need under other conditions, by simulating its recorded steps. Pure."""
