"""Functions that tests import: `gonogo.compare`, drop-in assertions, and the plug-in's hooks."""
