"""From what a user names (a model, files, flags) to a problem, or to a plan with its problem."""
