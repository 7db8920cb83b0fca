"""Operate."""
