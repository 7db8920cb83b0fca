"""The pages of flags: the list in the order to look at them in, and one flag with its evidence."""
