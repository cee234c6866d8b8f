"""What a person sees: progress, tables, estimates."""
