"""What can be seen of a translation without understanding it, and how much that corrects a model's scores."""
