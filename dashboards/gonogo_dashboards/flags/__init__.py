"""The pages of flags: the list, and one flag with its evidence."""
