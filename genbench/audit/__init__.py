"""The audit: does a measure move where nothing that matters changes, and stay where it should move (000)?"""
